import { Viewer } from "./viewer.js";

const STRIDE = 65535;

function bytesOf(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

// Points of the page's own world as rows of the view: a grid over the box that holds them all.
function chunkOf(cloud) {
  const places = new Float32Array(bytesOf(cloud.positions).buffer), colours = bytesOf(cloud.colours);
  const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
  places.forEach((value, at) => {
    low[at % 3] = Math.min(low[at % 3], value);
    high[at % 3] = Math.max(high[at % 3], value);
  });
  const scale = Math.max(...high.map((value, axis) => value - low[axis])) / STRIDE || 1;
  const rows = new DataView(new ArrayBuffer(10 * cloud.count));
  for (let row = 0; row < cloud.count; row++) {
    for (let axis = 0; axis < 3; axis++) {
      rows.setUint16(10 * row + 2 * axis, Math.round((places[3 * row + axis] - low[axis]) / scale), true);
      rows.setUint8(10 * row + 6 + axis, colours[3 * row + axis]);
    }
    rows.setUint8(10 * row + 9, 255);
  }
  const normals = new Int8Array(bytesOf(cloud.normals).buffer);
  return { frame: 0, time: 0, pose: [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1], origin: low, scale, normals,
    rows: new Uint8Array(rows.buffer), count: cloud.count };
}

const triples = (numbers) => numbers.flatMap((_, at) => (at % 3 ? [] : [numbers.slice(at, at + 3)]));
const shares = (colour) => colour.map((value) => value / 255);

function show(canvas, data) {
  const places = triples(data.trajectory.positions);
  const viewer = new Viewer(canvas, {
    capacity: Math.max(1, data.cloud ? data.cloud.count : 1),
    axes: data.axes,
    extent: { centre: data.centre, radius: data.radius, spacing: data.spacing, heights: [0, 1],
      times: [0, Math.max(1, places.length - 1)], ceiling: 1e30 },
    settings: { first: shares(data.colours.first), last: shares(data.colours.last), cutsCeiling: false },
  });
  if (data.cloud) viewer.addPoints(chunkOf(data.cloud));
  places.forEach((place, at) => viewer.scene.way.set(at, place, at));
  if (data.truth) viewer.scene.addWay(triples(data.truth), shares([154, 164, 177]), 2.5);
  const size = document.getElementById("point-size"), backs = document.getElementById("backs");
  size.addEventListener("input", () => viewer.set({ pointSize: Number(size.value) }));
  backs.addEventListener("change", () => viewer.set({ showsBacks: backs.checked }));
  document.getElementById("reset").addEventListener("click", () => viewer.home());
  document.getElementById("above").addEventListener("click", () => viewer.above());
  window.longtake = { viewer };
  canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
  canvas.addEventListener("webglcontextrestored", () => location.reload());
}

const stage = document.getElementById("view");
if (stage) {
  try {
    show(stage, JSON.parse(document.getElementById("data").textContent));
  } catch (error) {
    if (error.message !== "no WebGL 2") throw error;
    document.getElementById("stage").hidden = true;
    document.getElementById("no-webgl").hidden = false;
  }
}
