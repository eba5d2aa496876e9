// Moments that an answer looked at: a picture, the time, the weight; hovering lights them up, clicking flies there.

import { clock, element } from "./dom.js";

const THUMBNAIL_PX = 160;
const SAME_S = 1e-6; // times in the file of poses have so many digits

export class Evidence {
  // `on` has lightUp(span or null), flyTo(moment); `picture(frame, px)` resolves to an address.
  constructor(tracks, picture, on) {
    Object.assign(this, { tracks, picture, on, waiting: new Map() });
  }

  // The frame that a moment is about, with its pose: the one its span ends with. Null while that one is not known, whatever
  // others are; its picture does not wait for that where the server says which frame it is.
  frameOf(moment) {
    const found = this.tracks().until(moment.end_s);
    return found && Math.abs(found.time - moment.end_s) <= SAME_S ? found : null;
  }

  // Frames became known: moments that waited for theirs show it.
  framesKnown() {
    for (const [button, moment] of this.waiting) {
      const frame = this.frameOf(moment);
      if (frame) this.#show(button, frame.index);
      if (frame || !button.isConnected) this.waiting.delete(button);
    }
  }

  list(moments) {
    return element("div", { class: "evidence" }, ...moments.map((moment) => this.#button(moment)));
  }

  #button(moment) {
    const index = moment.frame ?? this.frameOf(moment)?.index ?? null, share = `${Math.round(moment.weight * 100)} %`;
    const span = [moment.start_s, moment.end_s], bar = element("i");
    bar.style.width = `${100 * moment.weight}%`;
    const words = `${clock(moment.start_s)}–${clock(moment.end_s)}, weight ${share}`;
    const lightUp = () => this.on.lightUp(span), dim = () => this.on.lightUp(null);
    const button = element("button", {
      type: "button", title: `Fly there: ${words}`, "aria-label": `Fly to ${words}`,
      onclick: () => this.on.flyTo(moment, this.frameOf(moment)),
      onmouseenter: lightUp, onmouseleave: dim, onfocus: lightUp, onblur: dim,
    }, element("span", { class: "blank", text: "no picture" }), element("span", { text: `${clock(moment.end_s)} · ${share}` }),
    element("span", { class: "weight" }, bar));
    if (index === null) this.waiting.set(button, moment);
    else this.#show(button, index);
    return button;
  }

  #show(button, index) {
    const blank = element("span", { class: "blank", text: `frame ${index}` });
    const image = element("img", { alt: `Frame ${index}`, loading: "lazy" });
    button.dataset.frame = index;
    button.firstElementChild.replaceWith(image);
    image.onerror = () => image.replaceWith(blank);
    image.onload = () => URL.revokeObjectURL(image.src); // of a server with a token, whose pictures are fetched beforehand
    this.picture(index, THUMBNAIL_PX).then((address) => { image.src = address; }, () => image.replaceWith(blank));
  }
}
