// Draws every figure from its numbers: values on hover and by arrow keys, series and scales toggled.
(function () {
  "use strict";
  const NAMESPACE = document.createRange().createContextualFragment("<svg></svg>").firstChild.namespaceURI;
  const ROOM = { right: 12, top: 6, bottom: 24, label: 15, letter: 6.3 };
  const HEIGHT = { least: 110, most: 320 };
  const PIXELS_PER_POINT = 4 / 3;
  // Nearest point that a pointer finds, in pixels.
  const REACH = 30;
  // Outlines of markers for a size of 1, after matplotlib's names.
  // What is cut away of a marker that is filled by half.
  const HALVES = { left: "inset(0 50% 0 0)", right: "inset(0 0 0 50%)", bottom: "inset(50% 0 0 0)", top: "inset(0 0 50% 0)" };
  const MARKERS = {
    o: "M-.5 0a.5 .5 0 1 0 1 0a.5 .5 0 1 0-1 0z",
    s: "M-.45-.45h.9v.9h-.9z",
    "^": "M0-.55L.55 .45H-.55z",
    v: "M0 .55L.55-.45H-.55z",
    "<": "M-.55 0L.45-.55V.55z",
    ">": "M.55 0L-.45-.55V.55z",
    D: "M0-.65L.65 0L0 .65L-.65 0z",
    d: "M0-.65L.45 0L0 .65L-.45 0z",
    P: "M-.18-.55h.36v.37h.37v.36h-.37v.37h-.36v-.37h-.37v-.36h.37z",
    X: "M-.55-.3L-.3-.55L0-.25L.3-.55L.55-.3L.25 0L.55 .3L.3 .55L0 .25L-.3 .55L-.55 .3L-.25 0z",
    p: "M0-.55L.52-.17L.32 .45H-.32L-.52-.17z",
    "*": "M0-.65L.16-.2L.62-.2L.25 .08L.38 .53L0 .25L-.38 .53L-.25 .08L-.62-.2L-.16-.2z",
    "+": "M-.5 0h1M0-.5v1",
    x: "M-.4-.4L.4 .4M-.4 .4L.4-.4"
  };

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    made.append(...children);
    return made;
  }

  function shape(parent, name, attributes, text) {
    const made = document.createElementNS(NAMESPACE, name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    if (text !== undefined) { setWords(made, text); }
    parent.append(made);
    return made;
  }

  // Text with powers ^{...} and indices _{...}.
  function setWords(parent, text) {
    const drawn = parent.namespaceURI === NAMESPACE;
    // A shift holds for all that follows, so every part says its own.
    let height = 0;
    text.split(/([\^_]\{[^}]*\})/).filter(Boolean).forEach(function (part) {
      const found = /^([\^_])\{(.*)\}$/.exec(part);
      if (!found) { parent.append(drawn ? tspan(part, 0) : part); return; }
      const up = found[1] === "^";
      parent.append(drawn ? tspan(found[2], up ? 0.4 : -0.25) : element(up ? "sup" : "sub", {}, found[2]));
    });
    function tspan(words, shift) {
      const made = document.createElementNS(NAMESPACE, "tspan");
      made.textContent = words;
      made.setAttribute("dy", (height - shift) + "em");
      if (shift) { made.setAttribute("font-size", "75%"); }
      height = shift;
      return made;
    }
  }

  function wrapped(text, letters) {
    return text.split("\n").flatMap(function (line) {
      const rows = [""];
      line.split(" ").forEach(function (word) {
        const longer = (rows[rows.length - 1] + " " + word).trim();
        if (plain(longer).length <= letters || !rows[rows.length - 1]) { rows[rows.length - 1] = longer; }
        else { rows.push(word); }
      });
      return rows.filter(Boolean);
    });
  }

  // Of the longest line.
  function letters(text) { return Math.max(...plain(text).split("\n").map((line) => line.length)); }

  function plain(text) { return text.replace(/[\^_]\{([^}]*)\}/g, (_, inner) => inner); }

  // Greys are shares of the ink, which is light on a dark page.
  function paint(color) {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
    if (red === green && green === blue) {
      return { color: "currentColor", opacity: red === 255 ? 1 : (1 - red / 255).toFixed(2) };
    }
    return { color: color, opacity: 1 };
  }

  function scaleOf(axis, start, length) {
    const turn = axis.log ? Math.log10 : (value) => value;
    const [low, high] = axis.ends.map(turn);
    const scale = function (value) {
      if (value === null || value === undefined || (axis.log && value <= 0)) { return null; }
      return start + (turn(value) - low) / (high - low) * length;
    };
    return scale;
  }

  function within(value, ends) { return Math.min(...ends) <= value && value <= Math.max(...ends); }

  function words(value) {
    if (value === null || value === undefined) { return "none"; }
    const size = Math.abs(value);
    if (size && (size < 1e-3 || size >= 1e6)) {
      const [lead, power] = value.toExponential(2).split("e");
      return (parseFloat(lead) + " × 10^{" + Number(power) + "}").replace(/-/g, "−");
    }
    return String(parseFloat(value.toPrecision(4))).replace("-", "−");
  }

  // The data of a chart: JSON, packed by gzip and written in base64.
  async function unpacked(root) {
    const bytes = Uint8Array.from(atob(root.querySelector("script").textContent), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  function Chart(root, data) {
    const off = new Set();
    let other = false;
    const keys = element("div", { class: "keys", role: "group", "aria-label": "series" });
    const grid = element("div", { class: "panels" });
    data.key.forEach((entry, place) => keys.append(entryButton(entry, "all", place)));
    if (data.panels.some((panel) => panel.y.other)) { keys.append(scaleButton()); }
    const panels = data.panels.map(function (panel, number) {
      const cell = element("div", { class: "panel" });
      cell.style.gridColumn = (panel.at[0] + 1) + " / span " + Math.max(1, panel.at[1]);
      cell.style.gridRow = (panel.at[2] + 1) + " / span " + Math.max(1, panel.at[3]);
      const own = panel.key || [];
      if (own.length) {
        const box = element("div", { class: "keys", role: "group", "aria-label": "series of this panel" });
        own.forEach((entry, place) => box.append(entryButton(entry, number, place)));
        cell.append(box);
      }
      grid.append(cell);
      return Panel(cell, panel, root.dataset.title, () => cell.clientWidth > 0.9 * grid.clientWidth);
    });
    root.append(keys, grid);

    function scaleButton() {
      const button = element("button", { type: "button", "aria-pressed": "false", class: "scale-switch" });
      const turned = data.panels.filter((panel) => panel.y.other);
      const all = (log) => turned.every((panel) => panel.y.log === log);
      button.textContent = all(true) ? "linear y" : all(false) ? "log y" : "swap log and linear y";
      button.addEventListener("click", function () {
        other = !other;
        button.setAttribute("aria-pressed", other);
        draw();
      });
      return button;
    }

    function entryButton(entry, panel, place) {
      const label = element("span", {});
      setWords(label, entry.label);
      // The heading of a legend.
      if (!entry.color) { return label; }
      const button = element("button", { type: "button", "aria-pressed": "true" });
      swatch(button, entry);
      button.append(label);
      button.addEventListener("click", function () {
        const name = panel + ":" + place;
        if (!off.delete(name)) { off.add(name); }
        button.setAttribute("aria-pressed", !off.has(name));
        draw();
      });
      return button;
    }

    function draw() {
      data.panels.forEach(function (panel, number) {
        const own = (panel.key || []).length;
        const shown = (panel.series || []).filter((series) => !series.key.some((place) =>
          off.has(place < own ? number + ":" + place : "all:" + (place - own))));
        const names = [...(panel.key || []), ...data.key].map((entry) => plain(entry.label));
        const row = panels.filter((each, place) => data.panels[place].at[2] === panel.at[2]);
        panels[number].draw(shown, names, other, row.map((each) => each.layout(other)));
      });
    }
    return draw;
  }

  function swatch(parent, entry) {
    if (!entry.color) { return; }
    const svg = shape(parent, "svg", { class: "swatch", viewBox: "0 0 26 12", "aria-hidden": "true" });
    const ink = paint(entry.color);
    if (entry.dash !== undefined) {
      shape(svg, "path", { d: "M0 6H26", stroke: ink.color, "stroke-opacity": ink.opacity,
        "stroke-width": 1.3 * (entry.width || 1.2), "stroke-dasharray": entry.dash });
    }
    if (entry.marker || entry.dash === undefined) { mark(svg, entry.marker || "s", 13, 6, 8, ink, entry.open); }
  }

  // open: whether the marker has the ground's colour, or the name of the half that has its own.
  function mark(parent, marker, x, y, size, ink, open) {
    const thin = marker === "x" || marker === "+";
    const drawn = { d: MARKERS[marker] || MARKERS.o,
      transform: "translate(" + x.toFixed(1) + " " + y.toFixed(1) + ") scale(" + size + ")" };
    shape(parent, "path", {
      ...drawn, fill: thin ? "none" : open ? "var(--ground)" : ink.color, "fill-opacity": open ? 1 : ink.opacity,
      stroke: open || thin ? ink.color : "none", "stroke-opacity": ink.opacity, "stroke-width": 1.2,
      "vector-effect": "non-scaling-stroke"
    });
    if (HALVES[open]) {
      shape(parent, "path", { ...drawn, fill: ink.color, "fill-opacity": ink.opacity, "clip-path": HALVES[open] });
    }
  }

  // Draws a panel into a cell; gives the function that draws it again.
  function Panel(cell, panel, title, alone) {
    const name = [panel.title || panel.under, title].filter(Boolean).map(plain).join(", ");
    const svg = shape(cell, "svg", { tabindex: "0", role: "application", "aria-roledescription": "chart",
      "aria-label": name + ": arrow keys read the values" });
    const tip = element("div", { class: "tip", role: "status" });
    tip.hidden = true;
    cell.prepend(svg, tip);
    let points = [];
    let at = -1;

    svg.addEventListener("pointermove", function (event) { nearest(event); });
    svg.addEventListener("pointerdown", function (event) { nearest(event); });
    svg.addEventListener("pointerleave", function () { tell(-1); });
    svg.addEventListener("blur", function () { tell(-1); });
    svg.addEventListener("keydown", function (event) {
      const next = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const jump = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") { tell(-1); return; }
      if (!points.length || !(next || jump)) { return; }
      event.preventDefault();
      if (at < 0) { tell(0); return; }
      tell(next ? (at + next + points.length) % points.length : along(jump));
    });

    // The point of the next series that is nearest in x.
    function along(step) {
      const series = [...new Set(points.map((point) => point.series))];
      const wanted = series[(series.indexOf(points[at].series) + step + series.length) % series.length];
      let best = at;
      points.forEach(function (point, place) {
        const nearer = best === at || Math.abs(point.x - points[at].x) < Math.abs(points[best].x - points[at].x);
        if (point.series === wanted && nearer) { best = place; }
      });
      return best;
    }

    function nearest(event) {
      const box = svg.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      let best = -1;
      let least = REACH;
      points.forEach(function (point, place) {
        const distance = Math.hypot(point.x - x, point.y - y);
        if (distance < least) { [best, least] = [place, distance]; }
      });
      tell(best);
    }

    function tell(place) {
      at = place;
      svg.querySelectorAll(".ring").forEach((ring) => ring.remove());
      tip.hidden = place < 0;
      if (place < 0) { return; }
      const point = points[place];
      shape(svg, "circle", { class: "ring", cx: point.x, cy: point.y, r: 6 });
      tip.replaceChildren(...point.lines.map(function (text) {
        const line = element("div", {});
        setWords(line, text);
        return line;
      }));
      const width = svg.clientWidth;
      tip.style.top = (svg.offsetTop + point.y + 10) + "px";
      tip.style.left = point.x < width / 2 ? point.x + "px" : "auto";
      tip.style.right = point.x < width / 2 ? "auto" : (cell.clientWidth - point.x) + "px";
    }

    function layout(other) {
      const width = Math.max(140, cell.clientWidth);
      const yAxis = other && panel.y.other ? { ...panel.y, ...panel.y.other } : panel.y;
      const bare = !panel.x.ticks.length && !yAxis.ticks.length;
      const longest = Math.max(0, ...yAxis.ticks.map(([, text]) => plain(text).length));
      const quiet = yAxis.quiet && longest > 8 && !alone();
      const beside = yAxis.label ? ROOM.label * yAxis.label.split("\n").length : 0;
      const left = bare ? 4 + beside : quiet ? 8 : Math.min(0.6 * width, 12 + ROOM.letter * longest + beside);
      const lines = wrapped(panel.title || panel.under || "", (width - left) / ROOM.letter);
      const top = ROOM.top + lines.length * ROOM.label;
      const xLabel = wrapped(panel.x.label, (width - left) / ROOM.letter);
      const inner = width - left - ROOM.right;
      // Names that would run into each other stand in two rows; of numbers some are left out.
      const named = panel.x.ticks.filter(([, text]) => /[a-z]/i.test(plain(text))).map(([, text]) => letters(text) * 6.2 + 3);
      const tall = Math.max(1, ...panel.x.ticks.map(([, text]) => text.split("\n").length));
      const rows = tall * (named.reduce((sum, each) => sum + each, 0) > inner ? 2 : 1);
      const bottom = bare && !panel.x.label ? 4 : ROOM.bottom + ROOM.label * (xLabel.length + rows - 1);
      return { width, yAxis, quiet, left, lines, top, xLabel, bottom, inner, tall, rows };
    }

    // row: layouts of the panels that stand beside this one, which all get one height.
    function draw(shown, names, other, row) {
      const { width, yAxis, quiet, left, lines, xLabel, bottom, inner, tall, rows } = layout(other);
      const together = alone() ? [layout(other)] : row;
      const least = Math.min(...together.map((each) => each.inner));
      const top = Math.max(...together.map((each) => each.top));
      const high = Math.min(HEIGHT.most, Math.max(HEIGHT.least, least * panel.shape));
      svg.replaceChildren();
      svg.setAttribute("viewBox", "0 0 " + width + " " + (high + top + bottom));
      svg.setAttribute("width", width);
      svg.setAttribute("height", high + top + bottom);
      const x = scaleOf(panel.x, 0, inner);
      const y = scaleOf(yAxis, high, -high);
      const blank = top - ROOM.top - ROOM.label * lines.length;
      lines.forEach((line, number) => shape(svg, "text", { x: left + inner / 2, y: blank + ROOM.label * (number + 1) - 3,
        "text-anchor": "middle", class: panel.title ? "title" : "title under" }, line));
      drawTicks(x, y, xLabel, quiet ? { ...yAxis, label: "", ticks: yAxis.ticks.map(([value]) => [value, ""]) } : yAxis, left, top, inner, high, tall, rows);
      const plot = shape(svg, "svg", { x: left, y: top, width: inner, height: high });
      const over = shape(svg, "g", { transform: "translate(" + left + " " + top + ")" });
      drawGround(plot, x, y, inner, high);
      const inside = (px, py) => px !== null && py !== null && px > -3 && px < inner + 3 && py > -3 && py < high + 3;
      points = [];
      shown.forEach((series) => drawSeries(series, plot, over, x, y, high));
      (panel.texts || []).forEach(function (text) {
        const place = text.part ? [text.part[0] * inner, (1 - text.part[1]) * high] : [x(text.at[0]), y(text.at[1])];
        if (place.includes(null)) { return; }
        const inside = text.at && (panel.spans || []).some((span) => span.y &&
          within(text.at[0], span.x) && within(text.at[1], span.y));
        const ink = inside ? { color: text.color, opacity: 1 } : paint(text.color);
        const rows = text.text.split("\n");
        rows.forEach((row, number) => shape(over, "text", { x: place[0],
          y: place[1] + (text.align[1] === "top" ? 11 : text.align[1] === "center" ? 4 : -2 - 12 * (rows.length - 1)) + 12 * number,
          "text-anchor": { left: "start", right: "end" }[text.align[0]] || "middle",
          style: "fill: " + ink.color, "fill-opacity": Math.max(0.75, ink.opacity) }, row));
      });
      points.forEach(function (point) { point.x += left; point.y += top; });
      points.sort((one, two) => one.number - two.number || one.x - two.x);
      tell(-1);

      function drawSeries(series, below, above, xs, ys, bottomEdge) {
        const ink = paint(series.color);
        const stroke = { stroke: ink.color, "stroke-opacity": ink.opacity, fill: "none" };
        const heights = series.edge ? series.y.map((part) => (1 - part) * bottomEdge) : series.y.map(ys);
        const aside = PIXELS_PER_POINT * (series.aside || 0);
        const places = series.x.map(xs).map((place) => place === null ? null : place + aside);
        if (series.low && series.band) {
          const ends = places.map((place, number) => [place, ys(series.low[number]), ys(series.high[number])])
            .filter(([place, low, up]) => place !== null && up !== null)
            .map(([place, low, up]) => [place, low === null ? bottomEdge : low, up]);
          const there = ends.map(([place, low]) => place + " " + low);
          const back = ends.map(([place, , up]) => place + " " + up).reverse();
          if (ends.length) {
            shape(below, "path", { d: "M" + [...there, ...back].join("L") + "Z", fill: ink.color, "fill-opacity": 0.18 });
          }
        } else if (series.low) {
          places.forEach(function (place, number) {
            const [low, up] = [ys(series.low[number]), ys(series.high[number])];
            if (place === null || up === null) { return; }
            shape(below, "path", { ...stroke, d: "M" + place + " " + (low === null ? bottomEdge : low) + "V" + up, "stroke-width": 1.4 });
          });
        }
        if (series.line) {
          let path = "";
          places.forEach(function (place, number) {
            const gap = place === null || heights[number] === null;
            path += gap ? " " : (path && !path.endsWith(" ") ? "L" : "M") + place.toFixed(1) + " " + heights[number].toFixed(1);
          });
          shape(below, "path", { ...stroke, d: path.trim() || "M0 0", "stroke-width": 1.3 * series.width,
            "stroke-dasharray": series.dash, "stroke-linejoin": "round" });
        }
        if (series.left) {
          heights.forEach(function (height, number) {
            if (series.left[number] === null || height === null) { return; }
            shape(below, "path", { ...stroke, d: "M" + xs(series.left[number]) + " " + height + "H" + xs(series.right[number]), "stroke-width": 1.4 });
          });
        }
        const size = 1.6 * (series.size || 0);
        places.forEach(function (place, number) {
          if (!inside(place, heights[number])) { return; }
          if (series.marker && size && number % (series.every || 1) === 0) {
            mark(above, series.marker, place, heights[number], size, ink, series.open);
          }
          points.push({ x: place, y: heights[number], series: series, number: shown.indexOf(series),
            lines: told(series, number) });
        });
      }

      function told(series, number) {
        const label = series.key.map((place) => names[place]).join(", ");
        const at = series.x[number];
        const tick = panel.x.ticks.find(([value, text]) => value === at && text);
        const told = (axis, number) => words(axis.percent && number !== null ? 100 * number : number);
        const value = series.edge ? "every run diverged" : told(yAxis, series.y[number]);
        const ends = (axis, low, up) => low && low[number] !== null && low[number] !== undefined
          ? " [" + told(axis, low[number]) + ", " + told(axis, up[number]) + "]" : "";
        const level = yAxis.ticks.find(([value, text]) => value === series.y[number] && !Number.isFinite(Number(plain(text).replace("−", "-"))) && !/10\^/.test(text));
        return [label, (panel.x.label || "x").replace("\n", " ") + ": " + (tick ? tick[1] : told(panel.x, at)) + ends(panel.x, series.left, series.right),
          (yAxis.label || "y").replace("\n", " ") + ": " + (level ? level[1] : value) + ends(yAxis, series.low, series.high)].filter(Boolean);
      }
    }

    function drawTicks(x, y, xLabel, yAxis, left, top, inner, high, tall, rows) {
      const group = shape(svg, "g", { class: "axes" });
      panel.x.ticks.forEach(function ([value, text]) {
        const place = left + x(value);
        shape(group, "path", { class: "grid", d: "M" + place + " " + top + "v" + high });
      });
      const free = Array(rows / tall).fill(-Infinity);
      panel.x.ticks.forEach(function ([value, text]) {
        const place = left + x(value);
        const half = letters(text) * 3.1;
        const line = text ? free.findIndex((end) => end <= place - half) : -1;
        if (line < 0) { return; }
        text.split("\n").forEach((part, number) => shape(group, "text", { x: place,
          y: top + high + 14 + ROOM.label * (tall * line + number), "text-anchor": "middle" }, part));
        free[line] = place + half + 3;
      });
      let lowest = Infinity;
      [...yAxis.ticks].sort((one, two) => one[0] - two[0]).forEach(function ([value, text]) {
        const place = top + y(value);
        shape(group, "path", { class: "grid", d: "M" + left + " " + place + "h" + inner });
        if (!text || Math.abs(place - lowest) < 11) { return; }
        shape(group, "text", { x: left - 5, y: place + 4, "text-anchor": "end" }, text);
        lowest = place;
      });
      if ((panel.series || []).length || panel.x.ticks.length || yAxis.ticks.length) {
        shape(group, "path", { class: "frame", d: "M" + left + " " + top + "v" + high + "h" + inner });
      }
      xLabel.forEach((line, number) => shape(group, "text", { x: left + inner / 2,
        y: top + high + ROOM.bottom + ROOM.label * (number + rows - 1) + 6, "text-anchor": "middle" }, line));
      if (yAxis.label) {
        const middle = top + high / 2;
        yAxis.label.split("\n").forEach((line, number) => shape(group, "text", { "text-anchor": "middle",
          transform: "translate(" + (11 + ROOM.label * number) + " " + middle + ") rotate(-90)" }, line));
      }
    }

    function drawGround(plot, x, y, inner, high) {
      (panel.spans || []).forEach(function (span) {
        const [start, end] = span.x.map(x).map((place) => Math.min(inner, Math.max(0, place)));
        const [low, up] = span.y ? span.y.map(y) : [high, 0];
        const ink = paint(span.color);
        shape(plot, "rect", { x: Math.min(start, end), y: Math.min(low, up), width: Math.abs(end - start),
          height: Math.abs(up - low), fill: ink.color, "fill-opacity": ink.opacity });
      });
      (panel.areas || []).forEach(function (area) {
        const ink = paint(area.color);
        const path = area.points.map((part) => "M" + part.map(([px, py]) => x(px) + " " + y(py)).join("L") + (area.filled ? "Z" : "")).join("");
        if (!path) { return; }
        shape(plot, "path", area.filled ? { d: path, fill: ink.color, "fill-opacity": ink.opacity, "fill-rule": "evenodd" }
          : { d: path, fill: "none", stroke: ink.color, "stroke-width": 1 });
      });
      (panel.pictures || []).forEach(function (picture) {
        const [[start, end], [low, up]] = [picture.x.map(x), picture.y.map(y)];
        shape(plot, "image", { href: "data:image/png;base64," + picture.png, x: start, y: up, width: end - start,
          height: low - up, preserveAspectRatio: "none" });
      });
      (panel.rules || []).forEach(function (rule) {
        const ink = paint(rule.color);
        const place = rule.x === undefined ? y(rule.y) : x(rule.x);
        if (place === null) { return; }
        shape(plot, "path", { d: rule.x === undefined ? "M0 " + place + "h" + inner : "M" + place + " 0v" + high,
          stroke: ink.color, "stroke-opacity": ink.opacity, "stroke-dasharray": rule.dash });
      });
    }

    return { layout, draw };
  }

  const drawn = [];
  const watch = new ResizeObserver(function (entries) {
    entries.forEach(function (entry) {
      const chart = drawn.find((each) => each.root === entry.target);
      const width = Math.round(entry.contentRect.width);
      if (width && width !== chart.width) {
        chart.width = width;
        chart.draw();
      }
    });
  });
  document.querySelectorAll(".chart").forEach(async function (root) {
    try {
      drawn.push({ root: root, draw: Chart(root, await unpacked(root)), width: 0 });
      watch.observe(root);
    } catch (error) {
      root.textContent = "This browser cannot unpack the chart; the picture is linked below.";
    }
  });
})();
