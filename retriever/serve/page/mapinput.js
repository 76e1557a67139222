/** Input on the map: drag, wheel, pinch, click and keys. */

const STEP = 60; // pixels an arrow key moves
const A_CLICK = 5; // a press that moves less, in pixels, is a click
const FINGER = 22;
const MOUSE = 10;

const ZOOMS = { "+": 1.4, "=": 1.4, "-": 1 / 1.4, _: 1 / 1.4 };
const ARROWS = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/**
 * Callbacks of `on`: hover(point or -1), pick(point, touched), moved(), key() after an arrow or zoom key, and open() for
 * Enter.
 */
export function listen(canvas, map, on) {
  const fingers = new Map();
  let pressed = null;
  let apart = 0;

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [[ax, ay], [bx, by]] = fingers.values();
    return [Math.hypot(ax - bx, ay - by), (ax + bx) / 2, (ay + by) / 2];
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, place(event));
    pressed = fingers.size === 1 ? place(event) : null;
    if (fingers.size === 2) [apart] = spread();
  });

  canvas.addEventListener("pointermove", (event) => {
    const now = place(event);
    const before = fingers.get(event.pointerId);
    if (!before) {
      if (event.pointerType !== "touch") on.hover(map.nearest(...now, MOUSE));
      return;
    }
    if (fingers.size === 1) {
      if (pressed && Math.hypot(now[0] - pressed[0], now[1] - pressed[1]) < A_CLICK) return;
      if (pressed) on.hover(-1);
      pressed = null;
      map.pan(now[0] - before[0], now[1] - before[1]);
      fingers.set(event.pointerId, now);
    } else if (fingers.size === 2) {
      const [, oldX, oldY] = spread();
      fingers.set(event.pointerId, now);
      const [distance, x, y] = spread();
      map.pan(x - oldX, y - oldY);
      if (apart > 0) map.zoomAt(distance / apart, x, y);
      apart = distance;
    }
    on.moved();
  });

  const lift = (event) => {
    if (!fingers.delete(event.pointerId)) return;
    if (pressed && event.type === "pointerup") {
      const touched = event.pointerType === "touch";
      on.pick(map.nearest(...pressed, touched ? FINGER : MOUSE), touched);
    }
    pressed = null;
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", (event) => {
    if (!fingers.size && event.pointerType !== "touch") on.hover(-1);
  });

  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      map.zoomAt(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), ...place(event));
      on.moved();
    },
    { passive: false },
  );

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in ARROWS) map.pan(...ARROWS[event.key].map((way) => way * STEP));
    else if (event.key in ZOOMS) map.zoomAt(ZOOMS[event.key]);
    else if (event.key === "0") map.look(32768, 32768, 1);
    else if (event.key !== "Enter") return;
    event.preventDefault();
    if (event.key === "Enter") return on.open();
    on.moved();
    on.key();
  });
}
