// What a session leaves to keep: cloud, poses, formats of other tools, the take, a picture of the view.

import { byId, download, element } from "./dom.js";

const CLOUD = ["Cloud", "PLY, for any viewer", "cloud.ply", "cloud.ply"]; // which a folder has too that is only looked at
const MADE = [
  ["Poses", "TUM: time, centre, quaternion", "poses.tum", "poses.tum"],
  ["COLMAP", "for splats and meshes", "export?format=colmap", "colmap.zip"],
  ["nerfstudio", "transforms.json", "export?format=nerfstudio", "nerfstudio.zip"],
  ["GLB", "for Blender and pages", "export?format=glb", "map.glb"],
  ["Take", "all of it, for longtake view", "take.zip", "take.zip"],
];

// `tell(sentence)` says why a file cannot be had.
export function fillDownloads(api, sessionId, photograph, tell) {
  const menu = byId("downloads"), sheet = menu.querySelector(".sheet");
  const entry = (name, about, act, kind = null) => element("button", { type: "button", role: "menuitem", class: kind, onclick: () => {
    menu.open = false;
    act();
  } }, element("strong", { text: name }), element("span", { class: "soft", text: about }));
  const file = ([name, about, path, saved], kind) => entry(name, about, () => fetchFile(api, sessionId(), path, saved, tell), kind);
  sheet.replaceChildren(
    file(CLOUD),
    ...MADE.map((one) => file(one, "of-a-server")),
    entry("Picture", "of the view as it is, PNG", photograph),
  );
}

// The server is asked first, so that a refusal is a sentence here and not a page of JSON.
async function fetchFile(api, id, path, file, tell) {
  if (!id) return tell("There is no session yet whose results could be downloaded.");
  try {
    const address = `/v1/sessions/${id}/${path}`;
    const reply = await api.request("GET", address);
    const saved = URL.createObjectURL(await reply.blob());
    download(saved, `longtake-${id}-${file}`);
    setTimeout(() => URL.revokeObjectURL(saved), 60_000);
  } catch (error) {
    tell(error.message);
  }
}
