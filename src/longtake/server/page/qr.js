// A text as a QR code (ISO/IEC 18004): bytes, error correction M, versions 1 to 10, which is 213 bytes.

// Of each version: words of error correction a block, then how many blocks have how many words of data.
const BLOCKS = [
  [10, [1, 16]], [16, [1, 28]], [26, [1, 44]], [18, [2, 32]], [24, [2, 43]], [16, [4, 27]], [18, [4, 31]],
  [22, [2, 38], [2, 39]], [22, [3, 36], [2, 37]], [26, [4, 43], [1, 44]],
];
const ALIGNMENT = [[], [6, 18], [6, 22], [6, 26], [6, 30], [6, 34], [6, 22, 38], [6, 24, 42], [6, 26, 46], [6, 28, 50]];
const MASKS = [
  (r, c) => (r + c) % 2, (r) => r % 2, (r, c) => c % 3, (r, c) => (r + c) % 3,
  (r, c) => (Math.floor(r / 2) + Math.floor(c / 3)) % 2, (r, c) => ((r * c) % 2) + ((r * c) % 3),
  (r, c) => (((r * c) % 2) + ((r * c) % 3)) % 2, (r, c) => (((r + c) % 2) + ((r * c) % 3)) % 2,
];
const LEVEL_M = 0;

// Rows of truths, dark or not; null where the text is too long.
export function qrCode(text) {
  const content = new TextEncoder().encode(text);
  const version = 1 + BLOCKS.findIndex((_, at) => content.length + (at < 9 ? 2 : 3) <= dataWords(at + 1));
  if (!version) return null;
  const words = interleaved(dataOf(content, version), version);
  const drawn = MASKS.map((_, mask) => draw(words, version, mask));
  return drawn.reduce((best, next) => (penalty(next) < penalty(best) ? next : best));
}

const dataWords = (version) => BLOCKS[version - 1].slice(1).reduce((sum, [count, size]) => sum + count * size, 0);

function dataOf(content, version) {
  const bits = [];
  const push = (value, count) => { for (let bit = count - 1; bit >= 0; bit--) bits.push((value >> bit) & 1); };
  push(0b0100, 4);
  push(content.length, version < 10 ? 8 : 16);
  for (const byte of content) push(byte, 8);
  const room = 8 * dataWords(version);
  push(0, Math.min(4, room - bits.length));
  while (bits.length % 8) bits.push(0);
  for (let pad = 0xec; bits.length < room; pad ^= 0xec ^ 0x11) push(pad, 8);
  return Array.from({ length: room / 8 }, (_, at) => parseInt(bits.slice(8 * at, 8 * at + 8).join(""), 2));
}

// Arithmetic of the field of 256 elements, modulo x^8 + x^4 + x^3 + x^2 + 1.
function times(a, b) {
  let product = 0;
  for (let bit = 7; bit >= 0; bit--) product = (product << 1) ^ ((product >> 7) * 0x11d) ^ (((b >> bit) & 1) * a);
  return product;
}

function generator(degree) {
  let found = [1], root = 1;
  for (let at = 0; at < degree; at++) {
    const next = [...found, 0];
    found.forEach((value, place) => { next[place + 1] ^= times(value, root); });
    [found, root] = [next, times(root, 2)];
  }
  return found;
}

function remainder(data, divisor) {
  const rest = [...data, ...new Array(divisor.length - 1).fill(0)];
  data.forEach((_, at) => {
    const factor = rest[at];
    divisor.forEach((value, place) => { rest[at + place] ^= times(value, factor); });
  });
  return rest.slice(data.length);
}

function interleaved(data, version) {
  const [numCheck, ...groups] = BLOCKS[version - 1], divisor = generator(numCheck), blocks = [];
  let start = 0;
  for (const [count, size] of groups) {
    for (let block = 0; block < count; block++, start += size) blocks.push(data.slice(start, start + size));
  }
  const checks = blocks.map((block) => remainder(block, divisor));
  const woven = (parts) => Array.from({ length: Math.max(...parts.map((part) => part.length)) }, (_, at) => parts
    .filter((part) => at < part.length).map((part) => part[at])).flat();
  return [...woven(blocks), ...woven(checks)];
}

function draw(words, version, mask) {
  const size = 17 + 4 * version;
  const dark = Array.from({ length: size }, () => new Array(size).fill(false));
  const fixed = Array.from({ length: size }, () => new Array(size).fill(false));
  const set = (row, place, value) => {
    if (row < 0 || place < 0 || row >= size || place >= size) return;
    dark[row][place] = Boolean(value);
    fixed[row][place] = true;
  };
  drawPatterns(set, fixed, size, version);
  drawFormat(set, size, mask);
  if (version >= 7) drawVersion(set, size, version);
  fill(dark, fixed, words, mask);
  return dark;
}

function drawPatterns(set, fixed, size, version) {
  for (const [row, place] of [[3, 3], [3, size - 4], [size - 4, 3]]) {
    for (let y = -4; y <= 4; y++) {
      for (let x = -4; x <= 4; x++) {
        const ring = Math.max(Math.abs(x), Math.abs(y));
        set(row + y, place + x, ring !== 2 && ring !== 4);
      }
    }
  }
  const centres = ALIGNMENT[version - 1];
  for (const row of centres) {
    for (const place of centres) {
      if (fixed[row][place]) continue;
      for (let y = -2; y <= 2; y++) for (let x = -2; x <= 2; x++) set(row + y, place + x, Math.max(Math.abs(x), Math.abs(y)) !== 1);
    }
  }
  for (let at = 8; at < size - 8; at++) {
    set(6, at, at % 2 === 0);
    set(at, 6, at % 2 === 0);
  }
}

function drawFormat(set, size, mask) {
  const value = (LEVEL_M << 3) | mask;
  let rest = value;
  for (let step = 0; step < 10; step++) rest = (rest << 1) ^ ((rest >> 9) * 0x537);
  const bits = ((value << 10) | rest) ^ 0x5412, bit = (at) => (bits >> at) & 1;
  const around = [0, 1, 2, 3, 4, 5, 7, 8];
  around.forEach((row, at) => set(row, 8, bit(at)));
  [7, 5, 4, 3, 2, 1, 0].forEach((place, at) => set(8, place, bit(8 + at)));
  for (let at = 0; at < 8; at++) set(8, size - 1 - at, bit(at));
  for (let at = 0; at < 7; at++) set(size - 7 + at, 8, bit(8 + at));
  set(size - 8, 8, true);
}

function drawVersion(set, size, version) {
  let rest = version;
  for (let step = 0; step < 12; step++) rest = (rest << 1) ^ ((rest >> 11) * 0x1f25);
  const bits = (version << 12) | rest;
  for (let at = 0; at < 18; at++) {
    const far = size - 11 + (at % 3), near = Math.floor(at / 3);
    set(far, near, (bits >> at) & 1);
    set(near, far, (bits >> at) & 1);
  }
}

// Up and down in pairs of columns from the right, around what is fixed.
function fill(dark, fixed, words, mask) {
  const size = dark.length;
  let bit = 0;
  for (let right = size - 1; right > 0; right -= 2) {
    if (right === 6) right = 5;
    for (let step = 0; step < size; step++) {
      const isUp = ((right + 1) & 2) === 0, row = isUp ? size - 1 - step : step;
      for (const place of [right, right - 1]) {
        if (fixed[row][place]) continue;
        const value = bit < 8 * words.length ? (words[bit >> 3] >> (7 - (bit & 7))) & 1 : 0;
        dark[row][place] = (value ^ (MASKS[mask](row, place) === 0 ? 1 : 0)) === 1;
        bit += 1;
      }
    }
  }
}

// The lower, the easier for a reader: runs, blocks, things that look like finders, and an uneven share of dark.
function penalty(dark) {
  const size = dark.length, columns = dark.map((_, place) => dark.map((row) => row[place]));
  let sum = 0, numDark = 0;
  for (const line of [...dark, ...columns]) {
    const text = line.map((value) => (value ? "1" : "0")).join("");
    for (const run of text.match(/0{5,}|1{5,}/g) ?? []) sum += run.length - 2;
    for (const like of ["10111010000", "00001011101"]) {
      for (let at = text.indexOf(like); at >= 0; at = text.indexOf(like, at + 1)) sum += 40;
    }
  }
  for (let row = 0; row < size; row++) {
    for (let place = 0; place < size; place++) {
      const value = dark[row][place];
      if (value) numDark += 1;
      if (row && place && dark[row - 1][place] === value && dark[row][place - 1] === value
        && dark[row - 1][place - 1] === value) sum += 3;
    }
  }
  return sum + 10 * Math.floor(Math.abs((20 * numDark) / size ** 2 - 10));
}

// On a canvas, with the quiet edge of four that readers need.
export function drawQr(canvas, code, pixels = 8) {
  const size = (code.length + 8) * pixels, pen = canvas.getContext("2d");
  Object.assign(canvas, { width: size, height: size });
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, size, size);
  pen.fillStyle = "#000000";
  code.forEach((row, y) => row.forEach((isDark, x) => isDark && pen.fillRect((x + 4) * pixels, (y + 4) * pixels, pixels, pixels)));
}
