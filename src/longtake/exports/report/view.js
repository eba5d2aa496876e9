"use strict";
(function () {
  const canvas = document.getElementById("view");
  if (!canvas) return;
  const data = JSON.parse(document.getElementById("data").textContent);
  const gl = canvas.getContext("webgl", { antialias: true, alpha: true, premultipliedAlpha: false });
  if (!gl) {
    document.getElementById("stage").hidden = true;
    document.getElementById("no-webgl").hidden = false;
    return;
  }

  const FIELD_OF_VIEW = 0.9;
  const STEEPEST = 1.5607;
  const HOME = { yaw: -0.6, pitch: 0.75 };
  const { right, down, forward } = data.axes;
  const up = down.map((value) => -value);
  const state = { yaw: 0, pitch: 0, distance: 1, target: [0, 0, 0] };

  const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
  const plus = (a, b, times) => a.map((value, axis) => value + times * b[axis]);
  const unit = (a) => a.map((value) => value / Math.hypot(...a));
  const clamp = (value, least, most) => Math.min(most, Math.max(least, value));

  const POINTS = [
    `attribute vec3 place, colour, normal;
     uniform mat4 clipFromWorld; uniform vec3 eye; uniform float pixels; uniform bool showsBacks;
     varying vec3 shown;
     void main() {
       gl_Position = clipFromWorld * vec4(place, 1.0);
       gl_PointSize = clamp(pixels / max(gl_Position.w, 1e-9), 1.0, 64.0);
       shown = colour;
       bool isBack = dot(normal, normal) > 0.1 && dot(normal, eye - place) < 0.0;
       if (isBack && !showsBacks) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
     }`,
    `precision mediump float; varying vec3 shown;
     void main() {
       vec2 off = gl_PointCoord - 0.5;
       if (dot(off, off) > 0.25) discard;
       gl_FragColor = vec4(shown, 1.0);
     }`,
  ];
  // A ribbon two triangles a segment, as wide on the screen everywhere, for lines are one pixel wide in WebGL.
  const PATH = [
    `attribute vec3 here, there; attribute vec2 corner;
     uniform mat4 clipFromWorld; uniform vec2 screen; uniform float width, nearest; uniform vec3 first, last;
     varying vec3 shown;
     void main() {
       vec4 a = clipFromWorld * vec4(here, 1.0), b = clipFromWorld * vec4(there, 1.0);
       vec2 along = (b.xy / b.w - a.xy / a.w) * screen;
       vec2 across = length(along) > 1e-6 ? normalize(vec2(-along.y, along.x)) : vec2(0.0, 1.0);
       a.xy += across * corner.x * width / screen * a.w;
       gl_Position = a.w < nearest || b.w < nearest ? vec4(2.0, 2.0, 2.0, 1.0) : a;
       shown = mix(first, last, corner.y);
     }`,
    `precision mediump float; varying vec3 shown; uniform float opacity;
     void main() { gl_FragColor = vec4(shown, opacity); }`,
  ];

  function build([vertex, fragment]) {
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
    return program;
  }

  function bytesOf(text) {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  }

  function store(values) {
    const buffer = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
    return buffer;
  }

  function feed(program, name, buffer, size, type, isNormalised, stride, offset) {
    const place = gl.getAttribLocation(program, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, size, type, isNormalised, stride, offset);
  }

  function ribbon(positions) {
    const count = positions.length / 3;
    const values = [];
    for (let segment = 0; segment + 1 < count; segment++) {
      const a = positions.slice(3 * segment, 3 * segment + 3);
      const b = positions.slice(3 * segment + 3, 3 * segment + 6);
      const [s, t] = [segment / (count - 1), (segment + 1) / (count - 1)];
      // Seen from b the other side is the same side, so its sign turns.
      const corners = [[a, b, 1, s], [a, b, -1, s], [b, a, 1, t], [b, a, 1, t], [b, a, -1, t], [a, b, 1, s]];
      for (const [here, there, side, share] of corners) values.push(...here, ...there, side, share);
    }
    return new Float32Array(values);
  }

  const pointProgram = build(POINTS);
  const pathProgram = build(PATH);
  const cloud = data.cloud && {
    count: data.cloud.count,
    places: store(new Float32Array(bytesOf(data.cloud.positions).buffer)),
    colours: store(bytesOf(data.cloud.colours)),
    normals: store(bytesOf(data.cloud.normals)),
  };
  const ways = [{ positions: data.trajectory.positions, first: data.colours.first, last: data.colours.last, width: 3 }];
  if (data.truth) ways.unshift({ positions: data.truth, first: [154, 164, 177], last: [154, 164, 177], width: 5 });
  for (const way of ways) {
    const values = ribbon(way.positions);
    Object.assign(way, { buffer: store(values), count: values.length / 8 });
  }
  const sizeInput = document.getElementById("point-size");
  const backsInput = document.getElementById("backs");

  function eye() {
    const level = plus(forward.map((value) => -value * Math.cos(state.yaw)), right, Math.sin(state.yaw));
    const away = plus(level.map((value) => value * Math.cos(state.pitch)), up, Math.sin(state.pitch));
    return plus(state.target, away, state.distance);
  }

  function axesAt(from) {
    const back = unit(plus(from, state.target, -1));
    const aside = unit(cross(up, back));
    return [aside, cross(back, aside), back];
  }

  function clipFromWorld(from, aspect) {
    const axes = axesAt(from);
    const near = state.distance / 100, far = state.distance + 20 * data.radius;
    const focal = 1 / Math.tan(FIELD_OF_VIEW / 2);
    const scales = [focal / Math.max(aspect, 1e-6), focal, -(far + near) / (far - near)];
    if (aspect < 1) { scales[0] = focal; scales[1] = focal * aspect; }
    const matrix = new Float32Array(16);
    for (let row = 0; row < 3; row++) {
      const shift = -dot(axes[row], from);
      const sign = row === 2 ? scales[2] : scales[row];
      for (let column = 0; column < 3; column++) matrix[4 * column + row] = sign * axes[row][column];
      matrix[12 + row] = sign * shift;
    }
    matrix[14] -= (2 * far * near) / (far - near);
    for (let column = 0; column < 3; column++) matrix[4 * column + 3] = -axes[2][column];
    matrix[15] = dot(axes[2], from);
    return { matrix, near, focal: aspect < 1 ? scales[1] : focal };
  }

  function drawCloud(from, clip) {
    gl.useProgram(pointProgram);
    feed(pointProgram, "place", cloud.places, 3, gl.FLOAT, false, 0, 0);
    feed(pointProgram, "colour", cloud.colours, 3, gl.UNSIGNED_BYTE, true, 0, 0);
    feed(pointProgram, "normal", cloud.normals, 3, gl.BYTE, true, 0, 0);
    const at = (name) => gl.getUniformLocation(pointProgram, name);
    gl.uniformMatrix4fv(at("clipFromWorld"), false, clip.matrix);
    gl.uniform3fv(at("eye"), from);
    gl.uniform1f(at("pixels"), data.spacing * Number(sizeInput.value) * clip.focal * canvas.height / 2);
    gl.uniform1i(at("showsBacks"), backsInput.checked ? 1 : 0);
    gl.enable(gl.DEPTH_TEST);
    gl.drawArrays(gl.POINTS, 0, cloud.count);
  }

  function drawPath(clip, way) {
    gl.useProgram(pathProgram);
    feed(pathProgram, "here", way.buffer, 3, gl.FLOAT, false, 32, 0);
    feed(pathProgram, "there", way.buffer, 3, gl.FLOAT, false, 32, 12);
    feed(pathProgram, "corner", way.buffer, 2, gl.FLOAT, false, 32, 24);
    const at = (name) => gl.getUniformLocation(pathProgram, name);
    gl.uniformMatrix4fv(at("clipFromWorld"), false, clip.matrix);
    gl.uniform2f(at("screen"), canvas.width, canvas.height);
    gl.uniform1f(at("nearest"), clip.near);
    gl.uniform3fv(at("first"), way.first.map((value) => value / 255));
    gl.uniform3fv(at("last"), way.last.map((value) => value / 255));
    gl.uniform1f(at("width"), way.width * window.devicePixelRatio);
    gl.enable(gl.BLEND);
    gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    // Faint where a wall is before it, then in full.
    for (const [opacity, isHidden] of [[0.3, true], [1, false]]) {
      if (isHidden) gl.disable(gl.DEPTH_TEST); else gl.enable(gl.DEPTH_TEST);
      gl.uniform1f(at("opacity"), opacity);
      gl.drawArrays(gl.TRIANGLES, 0, way.count);
    }
    gl.disable(gl.BLEND);
  }

  function draw() {
    isWaiting = false;
    const box = canvas.getBoundingClientRect();
    canvas.width = Math.max(1, Math.round(box.width * window.devicePixelRatio));
    canvas.height = Math.max(1, Math.round(box.height * window.devicePixelRatio));
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const from = eye();
    const clip = clipFromWorld(from, canvas.width / canvas.height);
    if (cloud) drawCloud(from, clip);
    for (const way of ways) drawPath(clip, way);
  }

  let isWaiting = false;
  function redraw() {
    if (!isWaiting) requestAnimationFrame(draw);
    isWaiting = true;
  }

  function turn(x, y) {
    state.yaw -= x;
    state.pitch = clamp(state.pitch + y, -STEEPEST, STEEPEST);
    redraw();
  }

  function zoom(times) {
    state.distance = clamp(state.distance * times, data.radius / 200, data.radius * 20);
    redraw();
  }

  function pan(x, y) {
    const [aside, above] = axesAt(eye());
    const perPixel = state.distance * Math.tan(FIELD_OF_VIEW / 2) * 2 / canvas.clientHeight;
    state.target = plus(plus(state.target, aside, -x * perPixel), above, y * perPixel);
    redraw();
  }

  function look(yaw, pitch) {
    Object.assign(state, { yaw, pitch, distance: data.radius * 2.15, target: [...data.centre] });
    redraw();
  }

  const fingers = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
  }
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const [x, y] = [event.clientX - before[0], event.clientY - before[1]];
    const other = [...fingers].find(([finger]) => finger !== event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (other) {
      const apart = (place) => Math.max(1, Math.hypot(place[0] - other[1][0], place[1] - other[1][1]));
      zoom(apart(before) / apart([event.clientX, event.clientY]));
      pan(x / 2, y / 2);
    } else if (event.shiftKey || event.buttons & 6) pan(x, y);
    else turn(x / 150, y / 150);
  });
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(clamp(event.deltaY, -200, 200) / 500));
  }, { passive: false });
  const KEYS = {
    ArrowLeft: () => turn(-0.1, 0), ArrowRight: () => turn(0.1, 0), ArrowUp: () => turn(0, -0.1),
    ArrowDown: () => turn(0, 0.1), "+": () => zoom(0.9), "-": () => zoom(1 / 0.9),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
  canvas.addEventListener("webglcontextrestored", () => location.reload());
  document.getElementById("reset").addEventListener("click", () => look(HOME.yaw, HOME.pitch));
  document.getElementById("above").addEventListener("click", () => look(0, STEEPEST));
  sizeInput.addEventListener("input", redraw);
  backsInput.addEventListener("change", redraw);
  new ResizeObserver(redraw).observe(canvas);
  look(HOME.yaw, HOME.pitch);
})();
