"use strict";
// The network: kernels, what they hand each other in which layout, and the reorders between them.
page.view("network", "Network", (root) => {
  const { plan, profile } = page.record;
  const { h, s, name, plain, time, bytes, percent, colour, swatch, table, showTip } = page;
  const { totalNs, shownNs, blocks, runOf } = planGraph;
  const { facts, names, took, describe, without, reorderFacts } = planFacts;
  const BUDGET = 48;
  const [READABLE, FAR, DUST] = [0.75, 0.5, 0.32];
  const LEAST_SEEN = 200; // pixels of the frame's height
  const kernelNode = (kernel) => planGraph.nodes.get(`k${kernel}`);
  const family = (desc) => plan.descs[desc].class;
  const layoutName = (desc) => plain(plan.descs[desc].layout);
  const unique = (values) => [...new Set(values)];

  // ---- what is chosen, shown and under way
  const usual = planGraph.expandedFor(BUDGET); // ids of blocks
  let expanded = new Set(usual);
  let showsFree = false;
  let placed = new Map(); // nodes with their places, by id
  let items = []; // marks, links, grounds and headings: where each is, how it is made, its element once it was seen
  let active = null; // the node that the Tab key reaches
  let turn = 0; // layouts that were begun; a later one ends an earlier
  let awaited = null; // the node to show when the layout under way is done
  let hasBegun = false;

  // ---- facts as text
  const share = (ns) => percent(ns / totalNs);

  function workOf(kernel) {
    const steps = kernel.steps.map((number) => plan.steps[number]);
    if (steps.length > 0) return unique(steps.map((step) => plain(step.primitive))).join(", ");
    return kernel.is_view ? "free view" : "computed with its neighbour";
  }

  const isReference = (kernel) => kernel.steps.some((number) => plan.steps[number].kind === "fallback");

  function layoutsOf(kernel) {
    const sources = unique(kernel.chosen.sources.map(layoutName)).join(", ");
    const dst = layoutName(kernel.chosen.dst);
    return sources === dst || sources === "" ? dst : `${sources} → ${dst}`;
  }

  const reordersOf = (node) => node.members.filter((each) => each.kind === "reorder");
  const blockNs = (node) => d3.sum(node.members, (each) => (each.times ? shownNs(each.times) : 0));
  const dstsOf = (node) => node.members.filter((each) => each.kind === "kernel").map((each) => plan.kernels[each.kernel].chosen.dst);
  const byCount = (values) => d3.rollups(values, (each) => each.length, (each) => each).sort((a, b) => b[1] - a[1]);
  const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

  // The lines of a mark, the last one in two halves.
  function linesOf(node) {
    const kernel = plan.kernels[node.kernel];
    switch (node.kind) {
      case "kernel": return [node.name, workOf(kernel), layoutsOf(kernel), `${time(shownNs(node.times))} · ${share(shownNs(node.times))}`];
      case "view": return [node.name, `free: ${layoutsOf(kernel)}`];
      case "vanished": return [node.names.join(", "), "vanished"];
      case "reorder": return [`${layoutName(node.source)} → ${layoutName(node.desc)}`, `reorder, ${bytes(node.nbytes)}, ${time(shownNs(node.times))}`];
      case "block": return [node.label, `${counted(node.kernels.length, "kernel")}, ${share(blockNs(node))} of the time`, byCount(dstsOf(node).map(layoutName)).map(([each, n]) => `${each} ×${n}`).join(", "), ""];
      default: return [node.name, `${node.kind}, ${layoutName(node.desc)} ${(plan.descs[node.desc].dims ?? []).join("×")}`];
    }
  }

  function spoken(node) {
    const lines = linesOf(node).filter((line) => line !== "").map((line) => fitted(plain(line), 900, DETAIL));
    if (node.kind === "block") lines.push(counted(reordersOf(node).length, "reorder"), "collapsed");
    if (node.kind === "reorder") lines.unshift(`reorder of ${fitted(plain(node.value), 900, DETAIL)}`);
    return lines.join(", ");
  }

  // ---- tooltips
  function told(node) {
    const kernel = plan.kernels[node.kernel];
    switch (node.kind) {
      case "reorder": return [h("strong", {}, "Reorder"), reorderFacts(node)];
      case "block": return [h("strong", {}, name(node.label)), facts([
        ["Kernels", String(node.kernels.length)], ["Time", `${time(blockNs(node))}, ${share(blockNs(node))}`],
        ["Layouts", byCount(dstsOf(node)).slice(0, 6).map(([desc, n]) => h("div", {}, swatch(family(desc)), `${layoutName(desc)} ×${n}`))],
        ["Reorders", String(reordersOf(node).length)]])];
      case "kernel": case "view": return [h("strong", {}, name(node.name)), facts([
        ["Computes", `${plain(kernel.operator)}: ${workOf(kernel)}`], ["By", kernel.chosen.impls.length ? kernel.chosen.impls.map(plain).join(", ") : null],
        ...kernel.reads.slice(0, 4).map((value, index) => ["Reads", name(value), " ", describe(kernel.chosen.sources[index])]),
        kernel.reads.length > 4 ? ["", `and ${kernel.reads.length - 4} more`] : ["", null],
        ["Writes", name(kernel.writes), " ", describe(kernel.chosen.dst)], ["Time", kernel.steps.length ? took(node.times) : null],
        ["Stands for", kernel.nodes.length ? names(kernel.nodes) : null]])];
      case "vanished": return [h("strong", {}, "Vanished"), h("div", {}, names(node.names, 12)), h("div", { class: "quiet" }, "Not computed: what is before it has the same result.")];
      default: return [h("strong", {}, name(node.name)), h("div", {}, `${node.kind} of the network, `, describe(node.desc))];
    }
  }

  function toldOfLink(link) {
    return link.links.slice(0, 5).map((each) => h("div", {}, name(each.value), " ", describe(each.desc)))
      .concat(link.links.length > 5 ? [h("div", {}, `and ${link.links.length - 5} more`)] : []);
  }

  // ---- the stage
  const layers = { halos: s("g", { class: "halos" }), outlines: s("g", { class: "outlines" }), links: s("g", { class: "links" }), nodes: s("g", { class: "nodes" }) };
  const world = s("g", { class: "world" }, Object.values(layers));
  const stage = s("svg", { class: "stage", role: "application", "aria-label": "The network as a graph", "aria-describedby": "network-keys" }, world);
  const status = h("div", { class: "status", role: "status" });
  const frame = h("div", { class: "frame" }, stage, status);
  const selection = d3.select(stage);

  // Text that fits a width, its middle left out where it is too long.
  const measuring = document.createElement("canvas").getContext("2d");
  function fitted(text, width, font) {
    measuring.font = font;
    if (measuring.measureText(text).width <= width) return text;
    const all = [...text];
    const characters = all.length > 300 ? [...all.slice(0, 150), ...all.slice(-150)] : all;
    let [low, high] = [0, characters.length];
    const cut = (n) => `${characters.slice(0, Math.ceil(n / 2)).join("")}…${characters.slice(characters.length - Math.floor(n / 2)).join("")}`;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (measuring.measureText(cut(middle)).width <= width) low = middle;
      else high = middle - 1;
    }
    return cut(low);
  }
  const TITLE = "600 13px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
  const DETAIL = "12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";

  function textAt(line, x, y, width, isTitle, more = {}) {
    const kind = [isTitle ? "title" : "detail", more.class ?? ""].join(" ").trim();
    return s("text", { ...more, x, y, class: kind }, fitted(plain(line), width, isTitle ? TITLE : DETAIL));
  }

  // The stripe of a mark: the classes of what is written, by how often.
  function stripe(families, height) {
    let from = 0;
    return byCount(families).map(([each, n]) => {
      const part = s("rect", { x: 0, y: from, width: 6, height: (height * n) / families.length, style: `fill:${colour(each)}` });
      from += (height * n) / families.length;
      return part;
    });
  }

  const barWidth = d3.scaleLinear([0, d3.max([...planGraph.nodes.values()], (node) => (node.times ? shownNs(node.times) : 0)) || 1], [0, 1]).clamp(true);

  const shapes = {
    kernel(node, width, height) {
      const [title, work, layouts, when] = linesOf(node);
      const kernel = plan.kernels[node.kernel];
      const beside = 8 + when.length * 6.6;
      return [
        s("rect", { class: "box", width, height, rx: 5 }), stripe([family(kernel.chosen.dst)], height),
        textAt(title, 15, 19, width - 23, true),
        textAt(work, 15, 35, width - 23, false, { class: isReference(kernel) ? "bad" : "" }),
        textAt(layouts, 15, 52, width - 23 - beside, false),
        textAt(when, width - 8, 52, beside, false, { "text-anchor": "end" }),
        s("rect", { class: "share", x: 6, y: height - 3, width: (width - 6) * barWidth(shownNs(node.times)), height: 3 }),
      ];
    },
    block(node, width, height) {
      const [title, work, layouts] = linesOf(node);
      const inside = reordersOf(node);
      const note = inside.length ? `${counted(inside.length, "reorder")}, ${time(d3.sum(inside, (each) => shownNs(each.times)))}` : "no reorder";
      return [
        s("rect", { class: "box", x: 5, y: 5, width, height, rx: 5 }), s("rect", { class: "box", width, height, rx: 5 }),
        stripe(dstsOf(node).map(family), height), s("path", { class: "twist", d: "M15,11l8,5l-8,5z" }),
        textAt(title, 29, 20, width - 37, true), textAt(work, 15, 37, width - 23, false), textAt(layouts, 15, 53, width - 23, false),
        inside.length ? s("path", { class: "gem", d: "M15,65l4,-5h8l4,5l-4,5h-8z" }) : null,
        textAt(note, inside.length ? 37 : 15, 69, width - 45, false),
      ];
    },
    reorder(node, width, height) {
      const [title, what] = linesOf(node);
      return [
        s("path", { class: "box", d: `M14,0H${width - 14}L${width},${height / 2}L${width - 14},${height}H14L0,${height / 2}Z` }),
        textAt(title, width / 2, 19, width - 30, true, { "text-anchor": "middle" }),
        textAt(what, width / 2, 36, width - 24, false, { "text-anchor": "middle" }),
      ];
    },
    pill(node, width, height) {
      const [title, what] = linesOf(node);
      return [
        s("rect", { class: "box", width, height, rx: height / 2 }),
        textAt(title, width / 2, height / 2 - 4, width - 30, true, { "text-anchor": "middle" }),
        textAt(what, width / 2, height / 2 + 12, width - 30, false, { "text-anchor": "middle" }),
      ];
    },
  };

  function makeNode(node) {
    const { x, y, width, height, kind } = node;
    const own = kind === "block" ? byCount(dstsOf(node).map(family))[0]?.[0] : kind === "kernel" ? family(plan.kernels[node.kernel].chosen.dst) : undefined;
    return s("g", {
      style: own === undefined ? null : `--own:${colour(own)}`, class: `node ${kind}`, role: "button", tabindex: "-1", "data-id": node.id, "data-kernel": kind === "kernel" || kind === "view" ? node.kernel : null,
      "aria-label": spoken(node), "aria-expanded": kind === "block" ? "false" : null, transform: `translate(${x - width / 2},${y - height / 2})`,
    }, (shapes[kind] ?? shapes.pill)(node, width, height).flat().filter((each) => each !== null));
  }

  const linkWidth = d3.scaleSqrt([0, d3.max(planGraph.links, (link) => plan.descs[link.desc].nbytes ?? 0) || 1], [1.5, 10]).clamp(true);
  const curve = d3.line().curve(d3.curveBasis);

  function makeLink(link) {
    const d = curve(link.points);
    return s("g", { class: `link ${link.kind}`, "data-link": link.id },
      s("path", { class: "hit", d }), s("path", { d, style: `stroke:${colour(link.family)};stroke-width:${linkWidth(link.nbytes).toFixed(2)}` }));
  }

  // ---- regions of one layout: a ground behind their marks and links
  const runFamily = plan.runs.map((run) => byCount(run.kernels.map((kernel) => family(plan.kernels[kernel].chosen.dst)).filter((each) => each !== "any"))[0]?.[0] ?? "other");

  function runAt(node) {
    if (node.kind === "kernel" || node.kind === "view") return runOf.get(node.kernel);
    if (node.kind !== "block") return undefined;
    const [run, ...others] = unique(node.kernels.map((each) => runOf.get(each.kernel)));
    return others.length ? undefined : run;
  }

  const ground = (run) => `color-mix(in srgb, ${colour(runFamily[run])} 14%, var(--ground))`;

  function haloItems(nodes, links) {
    const items = [];
    for (const node of nodes) {
      const run = runAt(node);
      if (run === undefined || plan.runs[run].kernels.length < 2) continue;
      const pad = 14;
      items.push(boxed(node, pad, "halos", () => s("rect", {
        x: node.x - node.width / 2 - pad, y: node.y - node.height / 2 - pad, width: node.width + 2 * pad, height: node.height + 2 * pad, rx: 12, style: `fill:${ground(run)}` })));
    }
    for (const link of links) {
      const [from, to] = [placed.get(link.from), placed.get(link.to)];
      const run = runAt(from);
      if (run === undefined || run !== runAt(to) || plan.runs[run].kernels.length < 2) continue;
      items.push({ ...extentOf(link.points, 20), layer: "halos", make: () => s("path", { d: curve(link.points), style: `stroke:${ground(run)};stroke-width:40` }) });
    }
    return items;
  }

  // Above the topmost mark of each region, and of each expanded block: names, side by side.
  function headings() {
    const above = new Map();
    const put = (node, what) => above.set(node.id, [...(above.get(node.id) ?? []), what]);
    const outlines = [];
    const shown = [...placed.values()];
    for (const block of blocks) {
      if (!expanded.has(block.id)) continue;
      const inside = shown.filter((node) => node.blocks?.includes(block) || (node.kind === "block" && node.key.startsWith(`${block.key}/`)));
      if (inside.length === 0) continue;
      put(d3.least(inside, (node) => node.y), { text: block.label, block });
      const deepest = d3.max(blocks.filter((each) => each.key.startsWith(`${block.key}/`) && expanded.has(each.id)), (each) => each.depth - block.depth) ?? 0;
      const outline = outlineOf(inside, 17 + 5 * deepest);
      const isForeign = (node) => !inside.includes(node) && node.x + node.width / 2 > outline.x0 && node.x - node.width / 2 < outline.x1 && node.y + node.height / 2 > outline.y0 && node.y - node.height / 2 < outline.y1;
      if (!shown.some(isForeign)) outlines.push({ ...outline, layer: "outlines", make: () => s("rect", { class: "outline", x: outline.x0, y: outline.y0, width: outline.x1 - outline.x0, height: outline.y1 - outline.y0, rx: 10 }) });
    }
    const seenRuns = d3.group(shown.filter((node) => runAt(node) !== undefined), runAt);
    for (const [run, members] of seenRuns) {
      if (plan.runs[run].kernels.length > 1) put(d3.least(members, (node) => node.y), { text: `${runFamily[run]} in ${counted(plan.runs[run].kernels.length, "kernel")}`, run });
    }
    return [...outlines, ...[...above].map(([id, several]) => headingItem(placed.get(id), several))];
  }

  function headingItem(node, several) {
    const [left, y] = [node.x - node.width / 2, node.y - node.height / 2 - 7];
    return { x0: left, x1: left + 500, y0: y - 16, y1: y, layer: "nodes", make: () => {
      let x = left;
      return s("g", { class: "headings" }, several.map(({ text, block, run }) => {
        const label = fitted(`${block ? "▾ " : ""}${plain(text)}`, 200, DETAIL);
        const at = block ? x : x + 15;
        x = at + measuring.measureText(label).width + 14;
        return [
          block ? null : s("rect", { class: "detail", x: at - 14, y: y - 9, width: 10, height: 10, rx: 2, style: `fill:${colour(runFamily[run])}` }),
          s("text", { x: at, y, class: block ? "heading detail" : "detail", "data-block": block?.id, "data-run": run }, block ? s("title", {}, `Collapse ${fitted(plain(block.label), 900, DETAIL)}`) : "", label),
        ];
      }));
    } };
  }

  const outlineOf = (nodes, pad) => ({
    x0: d3.min(nodes, (node) => node.x - node.width / 2) - pad, x1: d3.max(nodes, (node) => node.x + node.width / 2) + pad,
    y0: d3.min(nodes, (node) => node.y - node.height / 2) - pad, y1: d3.max(nodes, (node) => node.y + node.height / 2) + pad,
  });
  const boxed = (node, pad, layer, make) => ({ ...outlineOf([node], pad), layer, make });

  function extentOf(points, pad) {
    const [[x0, x1], [y0, y1]] = [d3.extent(points, ([x]) => x), d3.extent(points, ([, y]) => y)];
    return { x0: x0 - pad, x1: x1 + pad, y0: y0 - pad, y1: y1 + pad };
  }

  // ---- elements are made when they first come into view, and are not painted outside of it
  function cull() {
    const transform = d3.zoomTransform(stage);
    const [[left, top], [right, bottom]] = [transform.invert([-60, -60]), transform.invert([frame.clientWidth + 60, frame.clientHeight + 60])];
    for (const item of items) {
      const isSeen = (item.x1 >= left && item.x0 <= right && item.y1 >= top && item.y0 <= bottom) || (item.id !== undefined && item.id === active);
      if (isSeen === item.isSeen) continue;
      item.isSeen = isSeen;
      if (isSeen && item.element === undefined) make(item);
      else if (item.element !== undefined) item.element.style.display = isSeen ? "" : "none";
    }
  }

  function make(item) {
    item.element = item.make();
    if (item.id !== undefined) mark(item);
    layers[item.layer].append(item.element);
  }

  // What is chosen, found and active, on one mark.
  function mark(item) {
    const node = placed.get(item.id);
    const holds = (id) => id === item.id || (node.kind === "block" && node.members.some((each) => each.id === id));
    const isChosen = chosenNode() !== null && holds(chosenNode().id);
    item.element.classList.toggle("chosen", isChosen);
    item.element.classList.toggle("match", planSearch.matches.some((each) => holds(each.id)));
    item.element.classList.toggle("current", planSearch.current !== undefined && holds(planSearch.current.id));
    item.element.setAttribute("aria-pressed", String(isChosen));
    item.element.setAttribute("tabindex", item.id === active ? "0" : "-1");
  }

  function markAll() {
    for (const item of items) if (item.id !== undefined && item.element !== undefined) mark(item);
  }

  function addItems(nodes, links) {
    for (const node of nodes) placed.set(node.id, node);
    if (active === null && nodes.length > 0) active = nodes[0].id;
    items.push(...haloItems(nodes, links));
    items.push(...links.map((link) => ({ ...extentOf(link.points, 6), layer: "links", make: () => makeLink(link), link })));
    items.push(...nodes.map((node) => ({ ...boxed(node, 6, "nodes", () => makeNode(node)), id: node.id })));
  }

  // ---- zoom and pan
  const zoom = d3.zoom().on("zoom", onZoom).on("end", ({ sourceEvent }) => (sourceEvent || isMeant) && keepPlace())
    .filter((event) => (event.type === "wheel" ? event.ctrlKey || event.metaKey : !event.button))
    .wheelDelta((event) => -Math.sign(event.deltaY) * Math.min(Math.abs(event.deltaY) * 0.01, 0.4));
  let isDue = false;
  let isMeant = false; // a move that the reader asked for, by a key or a button

  function onZoom({ transform }) {
    world.setAttribute("transform", transform);
    stage.classList.toggle("far", transform.k < FAR);
    stage.classList.toggle("dust", transform.k < DUST);
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      cull();
    });
  }

  const isCalm = matchMedia("(prefers-reduced-motion: reduce)");
  const moving = (isSudden) => (isSudden || isCalm.matches ? selection : selection.transition().duration(220));

  // The place in the middle of the frame, and the scale: kept in the address.
  function keepPlace() {
    isMeant = false;
    const transform = d3.zoomTransform(stage);
    const middle = transform.invert([frame.clientWidth / 2, frame.clientHeight / 2]);
    if (frame.clientWidth > 0) page.keep({ at: [...middle.map(Math.round), transform.k.toFixed(3)].join(" ") });
  }

  function move(isSudden, transform) {
    isMeant = true;
    moving(isSudden).call(zoom.transform, transform);
  }

  const around = (x, y, k) => d3.zoomIdentity.translate(frame.clientWidth / 2, frame.clientHeight / 2).scale(k).translate(-x, -y);

  function keptPlace() {
    const [x, y, k, ...more] = (page.kept("at") ?? "").split(" ").map(Number);
    return k > 0 && [x, y, k].every(Number.isFinite) && more.length === 0 ? around(x, y, k) : null;
  }
  const bounds = () => (placed.size ? outlineOf([...placed.values()], 40) : { x0: 0, x1: 1, y0: 0, y1: 1 });

  function setBounds() {
    zoom.scaleExtent([Math.min(0.1, fitScale()), 2.5]);
    const { x0, x1, y0, y1 } = bounds();
    const [mx, my] = [frame.clientWidth / 2, frame.clientHeight / 2];
    zoom.translateExtent([[x0 - mx / READABLE, y0 - my / READABLE], [x1 + mx / READABLE, y1 + my / READABLE]]);
  }

  function fitScale() {
    const { x0, x1, y0, y1 } = bounds();
    return Math.min(frame.clientWidth / (x1 - x0), frame.clientHeight / (y1 - y0), 1.2);
  }

  function fit(isSudden = false) {
    if (frame.clientWidth === 0) return;
    const { x0, x1, y0, y1 } = bounds();
    const k = fitScale();
    moving(isSudden).call(zoom.transform, around((x0 + x1) / 2, (y0 + y1) / 2, k));
  }

  // What the address has; else all of it where that can be read, or its top.
  function begin() {
    hasBegun = frame.clientWidth > 0;
    if (hasBegun && keptPlace() !== null) {
      selection.call(zoom.transform, keptPlace());
      return;
    }
    if (fitScale() >= READABLE) {
      fit(true);
      return;
    }
    const { x0, x1, y0 } = bounds();
    const k = Math.max(READABLE, Math.min(1, frame.clientWidth / (x1 - x0)));
    const first = d3.least([...placed.values()], (node) => node.y);
    const middle = (x1 - x0) * k <= frame.clientWidth ? (x0 + x1) / 2 : first.x;
    selection.call(zoom.transform, d3.zoomIdentity.translate(frame.clientWidth / 2, 0).scale(k).translate(-middle, -y0));
  }

  // The part of the frame that the screen shows, from above to below: between the bar of views and the panel, where the
  // panel lies below.
  function sight() {
    const isWide = matchMedia("(min-width: 861px)").matches;
    const { top } = frame.getBoundingClientRect();
    const end = isWide || page.panel.hidden ? innerHeight : page.panel.getBoundingClientRect().top;
    const above = Math.max(0, (isWide ? page.tools.parentElement.offsetHeight : 0) - top);
    const below = Math.min(frame.clientHeight, end - top);
    return { above, below, size: below - above };
  }

  function bringIntoView(id, isSudden = false) {
    const node = placed.get(id);
    if (node === undefined) return;
    if (frame.clientWidth === 0) {
      awaited = id;
      return;
    }
    if (sight().size < LEAST_SEEN) frame.scrollIntoView({ block: "nearest" });
    const { above, below, size } = sight();
    const transform = d3.zoomTransform(stage);
    const [[x0, y0], [x1, y1]] = [transform.apply([node.x - node.width / 2, node.y - node.height / 2]), transform.apply([node.x + node.width / 2, node.y + node.height / 2])];
    if (transform.k >= FAR && x0 >= 0 && y0 >= above && x1 <= frame.clientWidth && y1 <= below) {
      keepPlace();
      return;
    }
    const k = transform.k < FAR ? READABLE : transform.k;
    move(isSudden, around(Math.round(node.x), Math.round(node.y + (frame.clientHeight / 2 - above - size / 2) / k), k));
    if (isSudden || isCalm.matches) cull();
  }

  function zoomBy(factor) {
    isMeant = true;
    moving(false).call(zoom.scaleBy, factor);
  }

  function fitAll() {
    isMeant = true;
    fit();
  }

  // Which blocks are expanded, by their numbers; null where they are as at first.
  const openText = () => (d3.difference(expanded, usual).size + d3.difference(usual, expanded).size === 0 ? null
    : blocks.flatMap((block, index) => (expanded.has(block.id) ? [index] : [])).join("."));
  const isAsKept = () => openText() === page.kept("open") && showsFree === (page.kept("free") !== null);

  function takeKept() {
    const open = page.kept("open");
    expanded = new Set(open === null ? usual : open.split(".").flatMap((index) => blocks[index]?.id ?? []));
    showsFree = page.kept("free") !== null;
    freeBox.checked = showsFree;
  }

  // ---- laying out anew; what is at hand stays where it is on the screen
  async function draw(anchor = null) {
    const mine = ++turn;
    const shown = planGraph.seen(expanded, showsFree);
    const before = anchor === null ? undefined : placed.get(anchor.before);
    const isFirst = placed.size === 0;
    const parts = [];
    page.keep({ open: openText(), free: showsFree ? 1 : null });
    stage.setAttribute("aria-busy", "true");
    status.textContent = shown.nodes.length > 200 ? `laying out ${shown.nodes.length} marks…` : "";
    await planGraph.place(shown, (nodes, links) => {
      if (isFirst) {
        addItems(nodes, links);
        if (parts.length === 0) begin();
        setBounds();
        cull();
      }
      parts.push([nodes, links]);
    }, () => mine !== turn);
    if (mine !== turn) return;
    if (!isFirst) {
      placed = new Map();
      items = [];
      Object.values(layers).forEach((layer) => layer.replaceChildren());
      for (const [nodes, links] of parts) addItems(nodes, links);
      if (!placed.has(active)) active = anchor?.after !== undefined && placed.has(anchor.after) ? anchor.after : placed.keys().next().value ?? null;
    }
    items.push(...headings());
    setBounds();
    const after = anchor === null ? undefined : placed.get(anchor.after);
    if (before !== undefined && after !== undefined) keepInPlace(before, after);
    else if (isFirst) begin();
    cull();
    status.textContent = "";
    stage.setAttribute("aria-busy", "false");
    bringAwaited();
  }

  function bringAwaited() {
    if (awaited === null || !placed.has(awaited) || frame.clientWidth === 0) return;
    const id = awaited;
    awaited = null;
    bringIntoView(id, true);
    cull();
  }

  function keepInPlace(before, after) {
    const { x, y, k } = d3.zoomTransform(stage);
    const top = (node) => node.y - node.height / 2;
    selection.call(zoom.transform, d3.zoomIdentity.translate(x + k * (before.x - after.x), y + k * (top(before) - top(after))).scale(k));
  }

  function setExpanded(block, isExpanded, hasFocus) {
    if (isExpanded) expanded.add(block.id);
    else expanded.delete(block.id);
    const first = d3.least(block.members.filter((node) => node.kind !== "view" || showsFree || !planGraph.isThrough(node)), (node) => node.order);
    const inner = planGraph.shownAs(first, expanded).id;
    const outer = d3.least([...placed.values()].filter((node) => node.blocks?.includes(block) || (node.kind === "block" && node.key.startsWith(`${block.key}/`))), (node) => node.y);
    if (hasFocus) active = isExpanded ? inner : block.id;
    return draw({ before: isExpanded ? block.id : outer?.id, after: isExpanded ? inner : block.id }).then(() => hasFocus && focus(active));
  }

  function setAll(isExpanded) {
    expanded = new Set(isExpanded ? blocks.map((block) => block.id) : []);
    const node = placed.get(active);
    const kept = node === undefined ? null : planGraph.shownAs(node.members?.[0] ?? node, expanded).id;
    return draw(kept === null ? null : { before: active, after: kept });
  }

  async function restore() {
    if (turn === 0) return;
    if (!isAsKept()) {
      takeKept();
      await draw();
    }
    if (keptPlace() !== null && frame.clientWidth > 0) selection.call(zoom.transform, keptPlace());
    cull();
  }
  page.onAddress(restore);

  const isBusy = () => stage.getAttribute("aria-busy") === "true";

  // Shows a node of the whole graph: expands what it is in.
  async function reveal(node, isSudden = false) {
    let isNew = turn === 0;
    if (planGraph.isThrough(node) && !showsFree) [showsFree, freeBox.checked, isNew] = [true, true, true];
    for (const block of node.blocks) {
      if (!expanded.has(block.id)) [isNew] = [true, expanded.add(block.id)];
    }
    if (isNew || isBusy()) {
      awaited = node.id;
      if (isNew) await draw({ before: active, after: active });
      return;
    }
    bringIntoView(node.id, isSudden);
    cull();
  }

  // ---- choosing
  const chosenNode = () => planGraph.nodes.get(page.reorder) ?? (page.selected === null ? null : kernelNode(page.selected));

  page.onSelect(() => {
    markAll();
    if (chosenNode() !== null && page.kept("at") === null) reveal(chosenNode());
  });

  function activate(id, hasFocus = false) {
    const node = placed.get(id);
    if (node === undefined) return;
    if (node.kind === "block") setExpanded(blocks.find((block) => block.id === id), true, hasFocus);
    else if (node.kind === "reorder") page.select(node.kernel, id);
    else if (node.kernel !== undefined) page.select(node.kernel);
  }

  // ---- pointer: one listener for all marks
  const under = (event) => {
    const [node, link] = [event.target.closest?.("[data-id]"), event.target.closest?.("[data-link]")];
    if (node) return told(placed.get(node.getAttribute("data-id")));
    return link ? toldOfLink(items.find((item) => item.link?.id === link.getAttribute("data-link")).link) : [];
  };
  stage.addEventListener("pointerover", (event) => event.buttons === 0 && showTip(event, ...under(event)));
  stage.addEventListener("pointerleave", (event) => showTip(event));
  stage.addEventListener("pointerdown", (event) => showTip(event));
  stage.addEventListener("focusin", (event) => {
    const id = event.target.getAttribute("data-id");
    if (id === null) return;
    [active] = [id, items.find((item) => item.id === active)?.element?.setAttribute("tabindex", "-1")];
    event.target.setAttribute("tabindex", "0");
    if (event.target.matches(":focus-visible")) showTip(event, ...told(placed.get(id)));
  });
  stage.addEventListener("focusout", (event) => showTip(event));
  stage.addEventListener("click", (event) => {
    const heading = event.target.closest("[data-block]");
    if (heading) setExpanded(blocks.find((block) => block.id === heading.getAttribute("data-block")), false, false);
    const node = event.target.closest("[data-id]");
    if (node) activate(node.getAttribute("data-id"));
  });

  // ---- keys
  function focus(id) {
    if (!placed.has(id)) return;
    active = id;
    bringIntoView(id, true);
    cull();
    items.find((item) => item.id === id)?.element?.focus({ preventScroll: true });
  }

  // The neighbour that an arrow leads to: along a link up or down, else the nearest mark beside.
  function neighbour(key) {
    const here = placed.get(active);
    const nearest = (ids) => d3.least(ids.map((id) => placed.get(id)).filter(Boolean), (node) => Math.abs(node.x - here.x));
    const ends = items.filter((item) => item.link).map((item) => item.link);
    if (key === "ArrowDown") return nearest(ends.filter((link) => link.from === here.id).map((link) => link.to));
    if (key === "ArrowUp") return nearest(ends.filter((link) => link.to === here.id).map((link) => link.from));
    const side = key === "ArrowRight" ? 1 : -1;
    const beside = [...placed.values()].filter((node) => side * (node.x - here.x) > 1 && Math.abs(node.y - here.y) < (node.height + here.height) / 2);
    return d3.least(beside, (node) => Math.abs(node.x - here.x));
  }

  function collapseAround(id) {
    const around = placed.get(id)?.kind === "block" ? blocks.filter((block) => id.startsWith(`${block.id}/`)) : placed.get(id)?.blocks ?? [];
    if (around.length > 0) setExpanded(around.at(-1), false, true);
  }

  const keys = {
    "+": () => zoomBy(1.4), "=": () => zoomBy(1.4), "-": () => zoomBy(1 / 1.4), f: fitAll, c: () => collapseAround(active),
    Enter: () => activate(active, true), " ": () => activate(active, true),
  };
  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) focus(neighbour(event.key)?.id);
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  });

  planSearch.onChange(() => {
    markAll();
    const { current, shown } = planSearch;
    if (current !== undefined && chosenNode()?.id !== current.id) reveal(current, true);
    else if (shown !== undefined && !planGraph.isThrough(shown)) bringIntoView(planGraph.shownAs(shown, expanded).id, true);
  });

  // ---- what stands around the graph
  const button = (text, label, onclick) => h("button", { type: "button", title: label, "aria-label": label, onclick }, text);
  const free = { views: plan.kernels.filter((kernel, index) => planGraph.isThrough(kernelNode(index))).length, vanished: d3.sum(planGraph.vanished, (names) => names.length) };
  const freeBox = h("input", { type: "checkbox", onchange: () => {
    showsFree = freeBox.checked;
    draw({ before: active, after: active });
  } });
  const toolbar = h("div", { class: "controls" },
    h("span", { class: "group" }, button("−", "Zoom out", () => zoomBy(1 / 1.4)), button("+", "Zoom in", () => zoomBy(1.4)), button("Fit", "Show the whole network", fitAll)),
    blocks.length === 0 ? null : h("span", { class: "group" }, button("Expand all", "Expand all blocks", () => setAll(true)), button("Collapse all", "Collapse all blocks", () => setAll(false))),
    free.views + free.vanished === 0 ? null : h("label", {}, freeBox, ` what was free: ${[free.views && counted(free.views, "view"), free.vanished && `${free.vanished} vanished`].filter(Boolean).join(", ")}`),
  );

  function legend() {
    const classes = byCount(planGraph.links.map((link) => family(link.desc)));
    const reorders = [...planGraph.nodes.values()].filter((node) => node.kind === "reorder").length;
    const gem = s("svg", { viewBox: "0 0 18 12", width: 18, height: 12, "aria-hidden": "true" }, s("path", { class: "gem", d: "M1,6l4,-5h8l4,5l-4,5h-8z" }));
    return h("div", { class: "legend", "aria-label": "Legend" },
      h("span", { class: "quiet" }, "Handed over in"),
      classes.map(([each, n]) => h("span", {}, swatch(each), `${each === "any" ? "any layout" : each} · ${n}`)),
      reorders ? h("span", {}, gem, ` reorders · ${reorders}`) : null,
      h("span", { class: "quiet" }, "wider: more bytes; shaded: one layout throughout"));
  }

  const help = h("details", { class: "quiet", id: "network-keys" }, h("summary", {}, "Keys"),
    h("p", {}, "In the graph: arrows walk to what is before, behind and beside; Enter opens a kernel, a reorder or a block; C collapses the block around; + and − zoom, F shows all. ",
      "/ goes to the search, Enter there to the next match, Shift and Enter to the one before. Drag to move; Ctrl and the wheel zoom."));

  // ---- the list of reorders: the graph's key facts as text
  function reorderList() {
    const reorders = d3.sort([...planGraph.nodes.values()].filter((node) => node.kind === "reorder"), (node) => -shownNs(node.times));
    const title = h("h2", {}, "Reorders by what they cost");
    if (reorders.length === 0) return [title, h("p", {}, "No tensor is reordered in a run.")];
    const ns = d3.sum(reorders, (node) => shownNs(node.times));
    const row = (node, index) => [
      [index, String(index + 1)], h("button", { type: "button", class: "link-button", onclick: () => page.select(node.kernel, node.id) }, name(node.value)),
      h("span", {}, swatch(family(node.source)), layoutName(node.source), " → ", swatch(family(node.desc)), layoutName(node.desc)),
      [node.nbytes, bytes(node.nbytes)], [node.times.predicted, time(node.times.predicted)], [node.times.measured ?? -1, time(node.times.measured)],
      h("span", {}, name(node.reason)), without(node),
    ];
    const shownTable = (several) => table(["#", "value", "from → to", "bytes", "predicted", "measured", "why it is there", "cheapest without it"], several.map(row));
    const box = h("div", {}, shownTable(reorders.slice(0, 12)));
    const more = reorders.length > 12 ? h("button", { type: "button", onclick: () => {
      box.replaceChildren(shownTable(reorders));
      more.remove();
    } }, `All ${reorders.length} reorders`) : null;
    return [title, h("p", { class: "quiet" }, `${counted(reorders.length, "reorder")} of ${bytes(d3.sum(reorders, (node) => node.nbytes))} take ${time(ns)}, ${share(ns)} of ${profile === null ? "what a run is predicted to take" : "a run"}. `,
      "The last column is how much more the cheapest network that does without it costs than the cheapest of all",
      plan.declined_ns > 0 ? `, which is ${time(plan.declined_ns)} cheaper than this plan: gains smaller than prices may be wrong by are declined.` : "."), box, more];
  }

  function runList() {
    const title = h("h2", {}, "Regions of one layout");
    if (plan.runs.length === 0) return [title, h("p", {}, "None is blocked or channels last: everything is handed over in plain layouts.")];
    const rows = d3.sort(plan.runs.map((run, index) => [run, index]), ([run]) => -run.kernels.length).map(([run, index]) => {
      const ns = d3.sum(run.kernels, (kernel) => shownNs(kernelNode(kernel).times));
      const named = (kernel) => name(plan.kernels[kernel].name);
      return [h("span", {}, swatch(runFamily[index]), runFamily[index]), [run.kernels.length, String(run.kernels.length)], named(run.kernels[0]), named(run.kernels.at(-1)), [ns, time(ns)], [ns, share(ns)]];
    });
    return [title, table(["layout", "kernels", "from", "to", "time", "share"], rows)];
  }

  root.append(
    toolbar, legend(),
    frame, help, h("div", { class: "lists" }, reorderList(), runList()),
  );
  selection.call(zoom).on("dblclick.zoom", null);
  let widthBefore = frame.clientWidth;
  new ResizeObserver(() => {
    if (frame.clientWidth === 0 || placed.size === 0) return;
    const { x, y, k } = d3.zoomTransform(stage);
    if (hasBegun) selection.call(zoom.transform, d3.zoomIdentity.translate(x + (frame.clientWidth - widthBefore) / 2, y).scale(k));
    widthBefore = frame.clientWidth;
    setBounds();
    if (!hasBegun) begin();
    cull();
    if (!isBusy()) bringAwaited();
  }).observe(stage);
  addEventListener("beforeprint", () => {
    fit(true);
    cull();
  });
  requestAnimationFrame(() => setTimeout(() => {
    if (turn > 0) return;
    takeKept();
    if (chosenNode() === null || page.kept("at") !== null) draw();
    else reveal(chosenNode(), true);
  }, 0));
});
