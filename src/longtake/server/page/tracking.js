// Whether the camera knows where it is, in words, by what each frame says of it.

const FOUND_S = 5; // of video, for which it is said that it was found
const WHY = {
  cut: "another scene", darkness: "dark", "too fast": "too fast", "no common view": "nothing in common with before",
  "standing still": "the picture stands still",
};

export class Tracking {
  constructor() {
    Object.assign(this, { newest: -1, now: null, lostS: null, isApart: false, foundS: null });
  }

  // `tracking` is null where the session does not look for places.
  take(index, time, tracking) {
    if (!tracking || index <= this.newest) return;
    if (tracking.state === "lost") {
      this.lostS ??= time;
      Object.assign(this, { isApart: true, foundS: null });
    } else this.lostS = null;
    if (tracking.state === "relocalised") Object.assign(this, { isApart: false, foundS: time });
    Object.assign(this, { newest: index, now: tracking });
  }

  get isLost() {
    return this.lostS !== null;
  }

  // Null where all is well.
  words(timeS) {
    if (this.isLost) return `Lost: ${why(this.now)} since ${Math.max(0, Math.round(timeS - this.lostS))} s`;
    if (this.isApart) return "in a new part of the map, not joined yet";
    if (this.foundS !== null && timeS - this.foundS < FOUND_S) return "found again";
    return this.now?.state === "weak" ? `unsure: ${why(this.now)}` : null;
  }
}

function why({ reason }) {
  return WHY[reason] ?? reason;
}
