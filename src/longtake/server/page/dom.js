// Small words and elements. Text from anywhere is only ever set as text.

export const byId = (id) => document.getElementById(id);

export function element(tag, { text, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  if (text !== undefined) made.textContent = text;
  made.append(...children.filter((child) => child !== null));
  return made;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

export function clock(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.round(Math.max(0, seconds) * 10) / 10, minutes = Math.floor(whole / 60), rest = whole - 60 * minutes;
  if (minutes >= 60) return `${Math.floor(minutes / 60)}:${pad(minutes % 60)}:${pad(Math.floor(rest))}`;
  return `${minutes}:${rest < 10 ? "0" : ""}${rest.toFixed(1)}`;
}

const pad = (number) => String(number).padStart(2, "0");

export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toPrecision(value < 100 ? 2 : 3)} s`;
}

export function bytes(count) {
  if (!Number.isFinite(count)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = count, place = 0;
  while (size >= 1000 && place < units.length - 1) [size, place] = [size / 1000, place + 1];
  return `${size >= 100 || place === 0 ? Math.round(size) : size.toPrecision(2)} ${units[place]}`;
}

export const many = (count) => count.toLocaleString("en");

export function counted(count, noun) {
  return `${many(count)} ${noun}${count === 1 ? "" : "s"}`;
}

// Saves a blob or an address under a name.
export function download(address, name) {
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}
