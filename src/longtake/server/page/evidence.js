// Moments that an answer looked at: a picture, the time, the weight; hovering lights them up, clicking flies there.

import { clock, element } from "./dom.js";

const THUMBNAIL_PX = 160;

export class Evidence {
  // `on` has lightUp(span or null), flyTo(moment); `picture(frame, px)` resolves to an address.
  constructor(tracks, picture, on) {
    Object.assign(this, { tracks, picture, on });
  }

  // The frame that a moment is about: the last one in its span.
  frameOf(moment) {
    const { frames } = this.tracks();
    if (Number.isInteger(moment.frame)) return this.tracks().get(moment.frame) ?? { index: moment.frame, pose: moment.pose };
    if (!frames.length) return null;
    const found = this.tracks().until(moment.end_s);
    return found && found.time >= moment.start_s - 1e-6 ? found : null;
  }

  list(moments) {
    return element("div", { class: "evidence" }, ...moments.map((moment) => this.#button(moment)));
  }

  #button(moment) {
    const frame = this.frameOf(moment), share = `${Math.round(moment.weight * 100)} %`;
    const span = [moment.start_s, moment.end_s], bar = element("i");
    bar.style.width = `${100 * moment.weight}%`;
    const words = `${clock(moment.start_s)}–${clock(moment.end_s)}, weight ${share}`;
    const lightUp = () => this.on.lightUp(span), dim = () => this.on.lightUp(null);
    return element("button", {
      type: "button", title: `Fly there: ${words}`, "aria-label": `Fly to ${words}`,
      "data-frame": frame?.index, onclick: () => this.on.flyTo(moment, this.frameOf(moment)),
      onmouseenter: lightUp, onmouseleave: dim, onfocus: lightUp, onblur: dim,
    }, this.#thumbnail(frame), element("span", { text: `${clock(moment.end_s)} · ${share}` }),
    element("span", { class: "weight" }, bar));
  }

  #thumbnail(frame) {
    const blank = element("span", { class: "blank", text: frame ? `frame ${frame.index}` : "no picture" });
    if (!frame) return blank;
    const image = element("img", { alt: `Frame ${frame.index}`, loading: "lazy" });
    image.onerror = () => image.replaceWith(blank);
    image.onload = () => URL.revokeObjectURL(image.src); // of a server with a token, whose pictures are fetched beforehand
    this.picture(frame.index, THUMBNAIL_PX).then((address) => { image.src = address; }, () => image.replaceWith(blank));
    return image;
  }
}
