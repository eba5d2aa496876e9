// The programs of the view. A point lies in the coordinates of its chunk; where the chunk lies is in four texels:
// three rows of its matrix, then the centre of the camera that saw it and the time.

export const SLOTS_ACROSS = 256;
export const TEXELS_PER_SLOT = 4;
// The time of points that are no longer shown.
export const NOWHEN = -1e9;

const RAMP = `
vec3 ramp(float share) {
  vec3 stops[5] = vec3[5](vec3(0.23, 0.16, 0.45), vec3(0.16, 0.40, 0.62), vec3(0.12, 0.62, 0.58),
                          vec3(0.52, 0.79, 0.35), vec3(0.98, 0.88, 0.30));
  float place = clamp(share, 0.0, 1.0) * 3.999;
  int first = int(place);
  return mix(stops[first], stops[first + 1], fract(place));
}`;

export const POINT_SHADERS = [
  `#version 300 es
  precision highp float; precision highp int;
  layout(location = 0) in uvec3 place;
  layout(location = 1) in vec4 tint;
  layout(location = 2) in uint slot;
  layout(location = 3) in vec3 normal;
  uniform highp sampler2D slots;
  uniform mat4 clipFromWorld;
  uniform vec3 eye, up, first, last, lit;
  uniform vec2 heights, times, span;
  uniform float pixels, largest, sureness, ceiling;
  uniform int colouring;
  uniform bool showsBacks;
  flat out vec3 shown;
  ${RAMP}
  void main() {
    ivec2 at = ivec2(int(slot) % ${SLOTS_ACROSS} * ${TEXELS_PER_SLOT}, int(slot) / ${SLOTS_ACROSS});
    vec4 here = vec4(vec3(place), 1.0);
    vec4 rows[3] = vec4[3](texelFetch(slots, at, 0), texelFetch(slots, at + ivec2(1, 0), 0),
                           texelFetch(slots, at + ivec2(2, 0), 0));
    vec4 seen = texelFetch(slots, at + ivec2(3, 0), 0);
    vec3 world = vec3(dot(rows[0], here), dot(rows[1], here), dot(rows[2], here));
    gl_Position = clipFromWorld * vec4(world, 1.0);
    gl_PointSize = clamp(pixels / max(gl_Position.w, 1e-9), 1.0, largest);
    bool hasNormal = dot(normal, normal) > 0.1;
    bool isBack = dot(hasNormal ? normal : seen.xyz - world, eye - world) < 0.0;
    bool isHidden = seen.w <= ${NOWHEN.toFixed(1)} || tint.a < sureness || dot(world - seen.xyz, up) > ceiling;
    if (isHidden || (isBack && !showsBacks)) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
    shown = tint.rgb;
    if (colouring == 1) shown = ramp((dot(world, up) - heights.x) / max(heights.y - heights.x, 1e-9));
    if (colouring == 2) shown = ramp(tint.a);
    if (colouring == 3) shown = mix(first, last, clamp((seen.w - times.x) / max(times.y - times.x, 1e-9), 0.0, 1.0));
    bool isLit = seen.w >= span.x && seen.w <= span.y;
    if (span.y >= span.x) shown = isLit ? mix(shown, lit, 0.45) : mix(shown, vec3(0.5), 0.55);
  }`,
  `#version 300 es
  precision mediump float;
  flat in vec3 shown;
  out vec4 colour;
  void main() {
    vec2 off = gl_PointCoord - 0.5;
    if (dot(off, off) > 0.26) discard;
    colour = vec4(shown, 1.0);
  }`,
];

// Each segment is a strip of two triangles, as wide on the screen everywhere, with soft edges: lines are one pixel wide
// in WebGL.
export const SEGMENT_SHADERS = [
  `#version 300 es
  precision highp float;
  layout(location = 0) in vec4 here;
  layout(location = 1) in vec4 there;
  uniform mat4 clipFromWorld;
  uniform vec2 screen, times, span;
  uniform vec3 first, last, lit;
  uniform float width, nearest;
  out vec3 shown;
  out float across_px;
  flat out float half_px;
  void main() {
    bool isEnd = gl_VertexID > 1;
    vec4 a = clipFromWorld * vec4(here.xyz, 1.0), b = clipFromWorld * vec4(there.xyz, 1.0);
    vec4 c = a, d = b;
    if (a.w < nearest) c = mix(a, b, (nearest - a.w) / (b.w - a.w));
    if (b.w < nearest) d = mix(b, a, (nearest - b.w) / (a.w - b.w));
    vec2 along = (d.xy / d.w - c.xy / c.w) * screen;
    vec2 across = length(along) > 1e-6 ? normalize(vec2(-along.y, along.x)) : vec2(0.0, 1.0);
    bool isLit = here.w >= span.x && here.w <= span.y;
    gl_Position = isEnd ? d : c;
    float side = gl_VertexID % 2 == 0 ? -1.0 : 1.0;
    half_px = width * (isLit ? 2.2 : 1.0);
    across_px = side * (half_px + 1.0);
    gl_Position.xy += across * across_px / screen * gl_Position.w;
    if (a.w < nearest && b.w < nearest) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
    float time = isEnd ? there.w : here.w;
    shown = isLit ? lit : mix(first, last, clamp((time - times.x) / max(times.y - times.x, 1e-9), 0.0, 1.0));
  }`,
  `#version 300 es
  precision mediump float;
  in vec3 shown;
  in float across_px;
  flat in float half_px;
  uniform float opacity;
  out vec4 colour;
  void main() { colour = vec4(shown, opacity * clamp(half_px + 0.5 - abs(across_px), 0.0, 1.0)); }`,
];

export const PICTURE_SHADERS = [
  `#version 300 es
  precision highp float;
  uniform mat4 clipFromWorld;
  uniform vec3 corners[4];
  out vec2 place;
  void main() {
    place = vec2(gl_VertexID % 2, gl_VertexID / 2);
    gl_Position = clipFromWorld * vec4(corners[gl_VertexID], 1.0);
  }`,
  `#version 300 es
  precision mediump float;
  in vec2 place;
  uniform sampler2D picture;
  uniform float opacity;
  out vec4 colour;
  void main() { colour = vec4(texture(picture, place).rgb, opacity); }`,
];

export class Program {
  constructor(gl, [vertex, fragment]) {
    this.gl = gl;
    this.program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(this.program, shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) {
        throw new Error(gl.getShaderInfoLog(shader));
      }
    }
    gl.linkProgram(this.program);
    this.places = new Map();
  }

  // Sets uniforms by name: whole numbers and truths as they are, arrays by their length.
  use(values) {
    const gl = this.gl;
    gl.useProgram(this.program);
    for (const [name, value] of Object.entries(values)) {
      if (!this.places.has(name)) this.places.set(name, gl.getUniformLocation(this.program, name));
      const place = this.places.get(name);
      if (typeof value === "boolean") gl.uniform1i(place, value ? 1 : 0);
      else if (typeof value === "number") gl.uniform1f(place, value);
      else if (value instanceof Int32Array) gl.uniform1iv(place, value);
      else if (value.length === 16) gl.uniformMatrix4fv(place, true, value);
      else if (value.length === 2) gl.uniform2fv(place, value);
      else gl.uniform3fv(place, value);
    }
  }
}
