"use strict";
// Where the time of a run goes: by step and block, against what the machine could do, as predicted, by other policies.
page.view("time", "Time", (root) => {
  const { plan, machine, others = [] } = page.record;
  const { isMove } = planRuns;
  const isMeasured = page.record.profile !== null;
  const profile = page.record.profile ?? page.record.predicted;
  const { h, s, name, plain, time, bytes, count, percent, colour, table, bar, fitted } = page;
  const numbers = new Map(plan.kernels.map((each, index) => [each.name, index]));
  const KINDS = {
    work: "computing", reorder: "reorders between kernels", input: "reorders of inputs", output: "reorders of results",
    fallback: "reference implementations", outside: "outside of steps",
  };
  const TITLES = {
    outside: () => "outside of steps", input: (text) => `input ${text}`, output: () => "a result, for the caller", reorder: (text) => `reorder for ${text}`,
  };
  const SYMBOLS = {
    plain: "square", "channels last": "circle", "8c": "triangle", "16c": "diamond2",
    int8: "star", other: "wye", any: "cross", reorder: "times",
  };
  // The steps with what pictures need: class of what is written, kernel, and the words that name it.
  const steps = planRuns.stepsOf(page.record, true).map((each) => ({
    ...each, step: plan.steps[each.number] ?? null, kernel: numbers.get(each.name) ?? null, title: (TITLES[each.kind] ?? ((text) => text))(each.name),
  }));
  const gflops = (each) => each.flops / each.ns;
  const format = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const three = (value) => format.format(value);

  function facts(each) {
    return [
      h("strong", {}, name(each.title)), name([each.primitive, each.impl].filter((text) => text).join(", ")), each.layouts ? name(each.layouts) : null,
      `${time(each.ns)}, ${percent(each.ns / profile.ns)} of the run${isMeasured && each.estimated_ns ? `; predicted ${time(each.estimated_ns)}` : ""}`,
      page.spread(each) === "" ? null : `in its runs ${page.spread(each)}`,
      each.flops ? `${three(gflops(each))} GFLOP/s, ${three(each.flops / each.nbytes)} operations a byte` : null,
      each.nbytes ? `${bytes(each.nbytes)}, ${three(each.nbytes / each.ns)} GB/s` : null,
      each.ceiling_share === null ? null : `${percent(each.ceiling_share, 0)} of the ceiling`,
      isMove(each) && each.step ? name(each.step.reason) : null,
    ].filter((fact) => fact !== null);
  }

  const choose = (each) => each.kernel !== null && page.select(each.kernel, each.step?.kind === "reorder" ? `r${each.number}` : null);
  const highlights = new Map();
  page.onSelect(() => highlights.forEach((highlight) => highlight()));

  const isCalibrated = machine.measured_flops.length > 0;
  const ceilings = isCalibrated ? "as measured on it" : `round figures for ${machine.isa}, not measured here, so that shares may exceed 100%`;

  function headline() {
    const moved = d3.sum(steps.filter(isMove), (each) => each.ns);
    const moves = steps.filter(isMove).length;
    const rest = profile.without_ceiling > 0.0005
      ? ` (${percent(profile.without_ceiling)} is outside of steps, or in steps that have no ceiling)` : "";
    return h("ul", { class: "findings" },
      h("li", {}, h("strong", {}, time(profile.ns)), isMeasured
        ? ` a run, measured: steps' medians of ${profile.n_runs} runs; the plan predicts ${time(plan.cost_ns)}.`
        : " a run, predicted. Nothing was run: all times here are the plan's own, and so are shares of the ceiling."),
      h("li", {}, h("strong", {}, percent(profile.above_80)), ` of the time is spent above 80% of the ceiling${rest}. `,
        `The ceiling is what this machine's arithmetic or memory allows, whichever binds the step: ${ceilings}.`),
      h("li", {}, h("strong", {}, percent(moved / profile.ns)), moves
        ? ` of the time goes to ${moves === 1 ? "1 reorder" : `${moves} reorders`}, ${time(moved)}.`
        : " of the time goes to reorders: there are none."),
    );
  }

  // Blocks of consecutive steps in the same block of the network: {title, depth, from, to, ns} by step numbers here.
  const byNames = plan.blocks_by === "names";
  const pathOf = (kernel) => (plan.kernels[numbers.get(kernel)]?.path ?? []).slice(0, 4);
  const shortened = (kernel) => (byNames ? kernel.split(/[/.]/).findLast((part) => part !== "") ?? kernel : kernel);
  const starts = d3.cumsum([0, ...steps.map((each) => each.ns)]);
  const paths = steps.map((each) => pathOf(each.name));
  const depth = Math.max(0, ...paths.map((each) => each.length));
  const blocks = [];
  for (let level = 0; level < depth; level += 1) {
    let open = null;
    paths.forEach((path, index) => {
      const title = path.length > level ? byNames ? path.slice(0, level + 1).join(".") : path[level] : null;
      if (title !== null && open?.title === title) open.to = index;
      else blocks.push(...(open = title === null ? null : { title, label: path[level], depth: level, from: index, to: index }) ? [open] : []);
    });
  }
  let from = null;
  steps.forEach((each, index) => {
    if (from !== null && each.kind !== "outside" && each.name === steps[index - 1].name) from.to = index;
    else {
      const title = each.kernel === null ? each.title : each.name;
      const label = paths[index].length ? shortened(each.name) : title;
      blocks.push(from = { title, label, depth: paths[index].length, from: index, to: index, isKernel: true });
    }
  });

  function blockFacts(block) {
    const within = steps.slice(block.from, block.to + 1);
    const ns = d3.sum(within, (each) => each.ns);
    const moved = d3.sum(within.filter(isMove), (each) => each.ns);
    const words = within.length === 1 ? "1 step" : `${within.length} steps`;
    const facts = [h("strong", {}, name(block.title)), `${time(ns)}, ${percent(ns / profile.ns)} of the run; ${words}`];
    return moved ? [...facts, `${time(moved)} of it in reorders`] : facts;
  }

  // What is shown of the run, in nanoseconds; all of it at first.
  let shown = [0, profile.ns];
  let redrawFlame = () => {};

  function limit(to) {
    shown = to;
    whole.hidden = to[0] === 0 && to[1] === profile.ns;
    redrawFlame();
  }

  function followAddress() {
    const [begin, end] = (page.kept("span") ?? "").split(" ").map(Number);
    limit(begin >= 0 && begin < end && begin < profile.ns ? [begin, Math.min(end, profile.ns)] : [0, profile.ns]);
  }

  function zoom(to) {
    limit(to);
    page.keep({ span: whole.hidden ? null : to.map(Math.round).join(" ") }, true);
    root.querySelector(".picture [tabindex='0']").focus();
    page.showTip({});
  }

  const whole = h("button", { type: "button", hidden: true, onclick: () => zoom([0, profile.ns]) }, "Show the whole run");

  function flame(width) {
    const [row, strip, axisHeight] = [22, 30, 34];
    const height = (depth + 1) * row + 4 + strip + axisHeight;
    const x = d3.scaleLinear(shown, [1, width - 1]);
    const svg = d3.create("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("width", width).attr("role", "group")
      .attr("aria-label", `The run by step, from left to right: ${steps.length} steps; the table below has the longest`);
    svg.append("defs").append(() => s("pattern", { id: "time-reorder", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("rect", { width: 6, height: 6, fill: colour("reorder") }), s("line", { x1: 0, y1: 0, x2: 0, y2: 6, stroke: "var(--ground)", "stroke-width": 3 })));
    const left = (at) => Math.max(0, x(starts[at]));
    const wide = (a, b) => Math.min(width, x(starts[b + 1])) - left(a);
    const isSeen = (a, b) => starts[b + 1] > shown[0] && starts[a] < shown[1];
    const seen = thinned(blocks.filter((each) => isSeen(each.from, each.to)), (each) => each.depth + (each.isKernel ? 100 : 0),
      (each) => left(each.from), (each) => wide(each.from, each.to));
    const kernelsHeight = (each) => (each.isKernel ? (depth + 1 - each.depth) * row : row) - 1;
    const boxes = svg.append("g").selectAll("rect").data(seen).join("rect")
      .attr("x", (each) => left(each.from) + 0.25).attr("y", (each) => each.depth * row).attr("rx", 2)
      .attr("width", (each) => Math.max(0.5, wide(each.from, each.to) - 0.5)).attr("height", kernelsHeight)
      .attr("fill", (each) => (each.isKernel ? "var(--ground)" : "var(--raised)"))
      .attr("stroke", (each) => (wide(each.from, each.to) < 2 ? null : "var(--line)"));
    svg.append("g").attr("pointer-events", "none").selectAll("text").data(seen.filter((each) => label(each) !== "")).join("text")
      .attr("x", (each) => left(each.from) + 4).attr("y", (each) => each.depth * row + row / 2 + 4).text(label);
    function label(each) {
      return fitted(each.label, wide(each.from, each.to) - 6);
    }
    const indexes = thinned(d3.range(steps.length).filter((at) => isSeen(at, at)), () => 0, left, (at) => wide(at, at));
    const bars = svg.append("g").selectAll("rect").data(indexes).join("rect")
      .attr("x", (at) => left(at)).attr("y", (depth + 1) * row + 3).attr("height", strip)
      .attr("width", (at) => Math.max(0.5, wide(at, at) - (wide(at, at) > 3 ? 1 : 0)))
      .attr("fill", (at) => (isMove(steps[at]) ? "url(#time-reorder)" : colour(steps[at].family)))
      .attr("stroke", (at) => (isMove(steps[at]) ? colour("reorder") : null));
    svg.append("g").attr("transform", `translate(0,${height - axisHeight + 2})`)
      .call(d3.axisBottom(x).ticks(Math.max(2, width / 130)).tickFormat((ns) => (ns === 0 ? "0" : page.tick(time(ns)))).tickSizeOuter(0))
      .call((group) => group.selectAll("text").attr("text-anchor", (ns) => (x(ns) < 20 ? "start" : x(ns) > width - 20 ? "end" : "middle")));
    const data = [...seen, ...indexes];
    const marks = [...boxes.nodes(), ...bars.nodes()];
    const isStep = (each) => typeof each === "number";
    page.walk(svg.node(), marks, (index) => (isStep(data[index]) ? facts(steps[data[index]]) : blockFacts(data[index])),
      (index) => chooseMark(data[index]), (index, keyName) => neighbour(data, index, keyName));
    svg.on("keydown", (event) => event.key === "Escape" && !whole.hidden && zoom([0, profile.ns]));
    highlights.set("flame", highlight);
    highlight();
    return svg.node();
    function chooseMark(each) {
      if (isStep(each)) choose(steps[each]);
      else if (each.isKernel) choose(steps[each.to]);
      else zoom([starts[each.from], starts[each.to + 1]]);
    }
    function highlight() {
      bars.classed("chosen", (at) => page.selected !== null && steps[at].kernel === page.selected);
    }
  }

  // Left and right stay in a row; up and down go to the block around, and to the first in it.
  function neighbour(data, index, keyName) {
    const rowOf = (each) => (typeof each === "number" ? depth + 1 : each.depth);
    const span = (each) => (typeof each === "number" ? [each, each] : [each.from, each.to]);
    const at = rowOf(data[index]);
    const [a, b] = span(data[index]);
    const direction = { ArrowRight: 1, ArrowLeft: -1 }[keyName];
    if (direction !== undefined) {
      for (let next = index + direction; next in data; next += direction) if (rowOf(data[next]) === at) return next;
      return index;
    }
    const towards = { ArrowUp: -1, ArrowDown: 1 }[keyName];
    if (towards === undefined) return null;
    const touching = d3.range(data.length).filter((each) => (rowOf(data[each]) - at) * towards > 0 && span(data[each])[0] <= b && span(data[each])[1] >= a);
    return touching.length ? d3.least(touching, (each) => (rowOf(data[each]) - at) * towards) : index;
  }

  // Of marks that share a pixel, one.
  function thinned(marks, row, left, wide) {
    const ends = new Map();
    return marks.filter((each) => {
      const end = left(each) + wide(each);
      if (end - (ends.get(row(each)) ?? -1) < 0.4) return false;
      ends.set(row(each), end);
      return true;
    });
  }

  function longest() {
    const worst = d3.sort(steps.filter((each) => each.kind !== "outside"), (each) => -each.ns).slice(0, 10);
    root.append(h("h2", {}, "The ten longest steps"), table(
      ["step", isMeasured ? "measured" : "predicted", "of the run", "", "of ceiling", "GFLOP/s", "GB/s"],
      worst.map((each) => [
        page.entitled(each.title, [each.primitive, each.impl].filter((text) => text).join(", "), each.layouts),
        [each.ns, time(each.ns)], [each.ns / profile.ns, percent(each.ns / profile.ns)],
        bar(each.ns / worst[0].ns, each.family), [each.ceiling_share ?? -1, percent(each.ceiling_share, 0)],
        [gflops(each), each.flops ? gflops(each).toFixed(0) : "–"], [each.nbytes / each.ns, each.nbytes ? (each.nbytes / each.ns).toFixed(1) : "–"],
      ]), `Together ${percent(d3.sum(worst, (each) => each.ns) / profile.ns)} of the run.`));
  }

  function kinds() {
    const rows = Object.entries(profile.by_kind).filter(([, ns]) => ns > 0);
    const most = d3.max(rows, ([, ns]) => ns);
    const family = (kind) => (isMove({ kind }) ? "reorder" : null);
    root.append(h("h2", {}, "By kind"), table(["kind", "time", "of the run", ""], rows.map(([kind, ns]) => [
      KINDS[kind], [ns, time(ns)], [ns / profile.ns, percent(ns / profile.ns)], bar(ns / most, family(kind)),
    ])));
  }

  const plotted = (width, height, more) => Plot.plot({
    width, height, marginLeft: 62, marginBottom: 40, marginTop: 26, marginRight: 20, className: "plotted", ...more,
    style: { background: "transparent", color: "inherit", fontSize: "12px", overflow: "visible", "--plot-background": "var(--ground)" },
  });

  const dots = (data, x, y, size) => Plot.dot(data, {
    x, y, r: size, symbol: (each) => SYMBOLS[each.family], fill: (each) => colour(each.family),
    stroke: (each) => (each.family === "any" ? "var(--quiet)" : colour(each.family)), sort: null,
  });
  const sizeBeside = (longest) => (each) => 3 + 9 * Math.sqrt(each.ns / longest.ns);

  // The dots of a plot as marks to walk along, the longest first, with names at some.
  function dotted(chart, data, label, place, named, taken = []) {
    const dots = d3.select(chart).selectAll("[aria-label='dot'] > *");
    dots.attr("aria-hidden", null).attr("fill-opacity", 0.6);
    const nodes = dots.nodes();
    chart.setAttribute("role", "group");
    chart.setAttribute("aria-label", label);
    page.walk(chart, nodes, (index) => facts(data[index]), (index) => choose(data[index]));
    const highlight = () => dots.classed("chosen", (_, index) => page.selected !== null && data[index].kernel === page.selected);
    highlights.set(label, highlight);
    highlight();
    direct(chart, data.map(place), named.map((each) => ({ ...place(each), text: each.title })), taken);
    return chart;
  }

  // Names beside dots, each where it covers fewest of them, and neither another name nor the edge; else it is left out.
  function direct(chart, dots, named, taken) {
    const [x, y] = [chart.scale("x"), chart.scale("y")];
    const centres = dots.map(({ at, radius }) => ({ across: x.apply(at[0]), up: y.apply(at[1]), radius }));
    for (const { at, text, radius } of named) {
      const words = fitted(text, 190);
      const [across, up, size, clear] = [x.apply(at[0]), y.apply(at[1]), words.length * 6.7, 1.1 * radius + 4];
      const covered = ({ left, base }) => centres.filter((each) => each.across + each.radius > left &&
        each.across - each.radius < left + size && each.up + each.radius > base - 11 && each.up - each.radius < base + 2).length;
      const isFree = ({ left, base }) => left > x.range[0] + 8 && left + size < x.range[1] + 12 &&
        base > y.range[1] + 10 && base < y.range[0] - 4 && taken.every((other) =>
          left > other.left + other.size + 4 || left + size + 4 < other.left || Math.abs(base - other.base) > 13);
      const places = [
        ["start", clear, 4], ["end", -clear, 4], ["middle", 0, -clear - 2], ["middle", 0, clear + 10],
        ["start", clear, -clear], ["start", clear, clear + 8], ["end", -clear, -clear], ["end", -clear, clear + 8],
      ].map(([anchor, aside, below]) => ({
        anchor, from: across + aside, base: up + below, left: across + aside - size * { start: 0, middle: 0.5, end: 1 }[anchor],
      })).filter(isFree);
      if (places.length === 0) continue;
      const place = d3.least(places, covered);
      taken.push({ ...place, size });
      chart.append(s("text", { x: place.from, y: place.base, "text-anchor": place.anchor, class: "halo", "aria-hidden": "true" }, words));
    }
  }

  const plainTick = (value) => (value >= 1 ? value.toLocaleString("en") : String(Number(value.toPrecision(1))));
  // 1, 2, 5, 10, ... within a domain; only powers of ten where that would be crowded, even steps where it is narrow.
  function decades([low, high], room) {
    const powers = d3.range(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)) + 1);
    const all = powers.flatMap((each) => [1, 2, 5].map((digit) => digit * 10 ** each)).filter((each) => each >= low * 0.999 && each <= high * 1.001);
    const tens = all.filter((each) => Number.isInteger(Math.round(Math.log10(each) * 1e6) / 1e6));
    if (all.length < 4) return d3.ticks(low, high, Math.min(4, room));
    return all.length <= room || tens.length < 2 ? all : tens;
  }
  // A logarithmic scale, and marks for its axis: Plot's own leaves labels out where a domain is wide.
  const log = (domain) => ({ type: "log", domain, axis: null });
  const axes = (x, y) => [
    Plot.gridX(x.ticks), Plot.gridY(y.ticks),
    Plot.axisX(x.ticks, { text: x.format, label: x.label, labelArrow: "none" }), Plot.axisY(y.ticks, { text: y.format, label: y.label, labelArrow: "none" }),
  ];
  const axis = (domain, room, label, format = plainTick) => ({ ticks: decades(domain, room), label, format });

  function roofline() {
    const computing = d3.sort(steps.filter((each) => each.flops > 0 && each.nbytes > 0), (each) => -each.ns);
    if (computing.length === 0) {
      root.append(h("h2", {}, "Against the ceilings"), h("p", {}, "No step counts multiply-adds, so there is no roofline."));
      return;
    }
    const peaks = d3.sort(Object.entries(machine.peak_flops), ([, peak]) => -peak);
    const intensity = (each) => each.flops / each.nbytes;
    const corners = peaks.map(([, peak]) => peak / machine.bandwidth);
    const xs = [d3.min([...computing.map(intensity), ...corners]) / 1.6, d3.max([...computing.map(intensity), ...corners]) * 1.6];
    const highest = d3.max(peaks, ([, peak]) => peak);
    const ys = [Math.min(d3.min(computing, gflops), highest / 10) / 1.5, Math.max(d3.max(computing, gflops), highest) * 1.5];
    const size = sizeBeside(computing[0]);
    const lowest = Math.max(xs[0], ys[0] / machine.bandwidth);
    const drawn = { stroke: "currentColor", strokeWidth: 1.5 };
    const words = [
      "Each dot is a step, its area the step's time: further right, more arithmetic a byte; further up, faster. ",
      `Lines are the ceilings, ${ceilings}. One above the slope reads what caches still hold.`,
      page.legend([...new Set(computing.map((each) => each.family))]),
    ];
    page.figure(root, "Against the ceilings: a roofline", words, (width) => {
      const chart = plotted(width, width < 560 ? 340 : 440, {
        x: log(xs), y: log(ys), r: { type: "identity" }, symbol: { type: "identity" },
        marks: [
          axes(axis(xs, width / 70, "operations a byte"), axis(ys, 9, "GFLOP/s")),
          Plot.line([lowest, highest / machine.bandwidth], { x: (each) => each, y: (each) => each * machine.bandwidth, ...drawn }),
          peaks.map(([, peak]) => Plot.line([peak / machine.bandwidth, xs[1]], { x: (each) => each, y: () => peak, ...drawn })),
          peaks.map(([dtype, peak], index) => Plot.text([`${dtype}: ${count(peak)} GFLOP/s`.replace(" k GFLOP/s", " TFLOP/s")], {
            x: xs[1], y: peak, text: (each) => each, textAnchor: "end", dy: index ? 9 : -9, fill: "currentColor", stroke: "var(--ground)", strokeWidth: 4,
          })),
          dots(computing, intensity, gflops, size),
        ],
      });
      const [x, y] = [chart.scale("x"), chart.scale("y")];
      const middle = Math.sqrt(lowest * d3.min(corners));
      const [[fromX, fromY], [toX, toY]] = [middle, 2 * middle].map((each) => [x.apply(each), y.apply(each * machine.bandwidth)]);
      const slope = (Math.atan2(toY - fromY, toX - fromX) * 180) / Math.PI;
      const onSlope = { class: "halo", "text-anchor": "middle", transform: `translate(${fromX},${fromY}) rotate(${slope}) translate(0,-7)` };
      chart.append(s("text", onSlope, `memory: ${three(machine.bandwidth)} GB/s`));
      const place = (each) => ({ at: [intensity(each), gflops(each)], radius: size(each) });
      return dotted(chart, computing, `Roofline of ${computing.length} steps`, place, computing.slice(0, width < 560 ? 3 : 5),
        peaks.map(([, peak], index) => ({ left: x.range[1] - 140, base: y.apply(peak) + (index ? 13 : -5), size: 140 })));
    });
    movers();
  }

  // Steps that count no arithmetic, by what they move in a second.
  function movers() {
    const moving = d3.sort(steps.filter((each) => each.flops === 0 && each.nbytes > 0), (each) => -each.ns);
    if (moving.length === 0) return;
    const rate = (each) => each.nbytes / each.ns;
    const limits = [...new Set([machine.bandwidth, machine.reorder_bandwidth])];
    const size = sizeBeside(moving[0]);
    const reorders = moving.filter(isMove).length;
    const xs = [Math.min(d3.min(moving, rate), d3.min(limits)) / 1.5, Math.max(d3.max(moving, rate), d3.max(limits)) * 1.5];
    const ys = [d3.min(moving, (each) => each.ns) / 1.6, d3.max(moving, (each) => each.ns) * 1.6];
    const words = [
      `${moving.length} steps, ${reorders} of them reorders, by the bytes that they read and write a second; `,
      "lines are what memory gives. Above them, caches serve.", page.legend([...new Set(moving.map((each) => each.family))]),
    ];
    page.figure(root, "Steps without multiply-adds", words, (width) => {
      const chart = plotted(width, 190, {
        x: log(xs), y: log(ys), r: { type: "identity" }, symbol: { type: "identity" },
        marks: [
          axes(axis(xs, width / 60, "GB/s"), axis(ys, 3, "time", (ns) => page.tick(time(ns)))),
          Plot.ruleX(limits, { stroke: "currentColor", strokeWidth: 1.5 }),
          dots(moving, rate, (each) => each.ns, size),
        ],
      });
      const x = chart.scale("x");
      limits.forEach((each) => chart.append(s("text", {
        class: "halo", y: 22, ...(each === d3.min(limits) ? { x: x.apply(each) - 4, "text-anchor": "end" } : { x: x.apply(each) + 4 }),
      }, each === machine.bandwidth ? "memory" : "reorders")));
      const place = (each) => ({ at: [rate(each), each.ns], radius: size(each) });
      return dotted(chart, moving, `Rates of ${moving.length} steps`, place, moving.slice(0, width < 560 ? 2 : 3));
    });
  }

  function predictions() {
    if (!isMeasured || profile.prediction === null) return;
    const both = d3.sort(steps.filter((each) => each.estimated_ns > 0 && each.ns > 0), (each) => -each.ns);
    const [ratio, spread] = profile.prediction;
    const [least, most] = d3.extent(both.flatMap((each) => [each.ns, each.estimated_ns]));
    const ends = [least / 1.5, most * 1.5];
    const size = sizeBeside(both[0]);
    const off = (each) => Math.abs(Math.log(each.ns / each.estimated_ns / ratio));
    const isFar = (each) => each.ns > (0.2 * profile.ns) / both.length && off(each) > Math.log(1.25);
    const far = d3.sort(both.filter(isFar), (each) => -off(each)).slice(0, 5);
    const words = [
      `Steps take ${ratio.toFixed(2)} times what was predicted, on geometric average; two in three lie within a factor of `,
      `${spread.toFixed(2)} of that. On the line both agree; named are the steps furthest from the average, short ones left out.`,
    ];
    page.figure(root, "Prediction against measurement", words, (width) => {
      const side = Math.min(width, 560);
      const chart = plotted(side, side < 480 ? 340 : 440, {
        x: log(ends), y: log(ends), r: { type: "identity" }, symbol: { type: "identity" },
        marks: [
          axes(axis(ends, side / 80, "predicted", (ns) => page.tick(time(ns))), axis(ends, 12, "measured", (ns) => page.tick(time(ns)))),
          Plot.line(ends, { x: (each) => each, y: (each) => each, stroke: "currentColor", strokeWidth: 1.5 }),
          dots(both, (each) => each.estimated_ns, (each) => each.ns, size),
        ],
      });
      const place = (each) => ({ at: [each.estimated_ns, each.ns], radius: size(each) });
      return dotted(chart, both, `Predicted and measured times of ${both.length} steps`, place, far);
    });
    if (far.length) root.append(table(["furthest from prediction", "predicted", "measured", "measured / predicted", "beside the average"], far.map((each) => [
      page.entitled(each.title, each.primitive, each.layouts), [each.estimated_ns, time(each.estimated_ns)], [each.ns, time(each.ns)],
      [each.ns / each.estimated_ns, (each.ns / each.estimated_ns).toFixed(2)],
      [each.ns / each.estimated_ns / ratio, page.signed(percent(each.ns / each.estimated_ns / ratio - 1, 0))],
    ])));
  }

  // Nanoseconds of each kernel of a plan, with the reorders that it demands: measured where it ran.
  function byKernel({ plan: other, profile: ran }) {
    const timed = ran ? ran.steps.filter((each) => each.kind !== "outside").map((each) => [each.name, each.ns])
      : [...other.entries.map((each) => [each.input, each.cost_ns]), ...other.steps.map((each) => [each.kernel, each.cost_ns])];
    return d3.rollup(timed.filter(([, ns]) => ns > 0), (rows) => d3.sum(rows, ([, ns]) => ns), ([kernel]) => kernel);
  }

  function perBlock() {
    const shownPlans = [{ plan, profile: page.record.profile }, ...others.map((each) => (each.plan ? each : { plan: each, profile: null }))];
    if (shownPlans.length < 2) {
      root.append(h("p", { class: "quiet" }, "Only this plan is in the page; one by blocklayout show has each layer in every policy."));
      return;
    }
    const isRun = shownPlans.every((each) => each.profile);
    const columns = shownPlans.map((each) => ({ policy: each.plan.policy, times: byKernel(isRun ? each : { plan: each.plan, profile: null }) }));
    const kernels = [...new Set(columns.flatMap(({ times }) => [...times.keys()]))];
    const block = (kernel) => pathOf(kernel).slice(0, 2).join(byNames ? "." : ", ") || kernel;
    root.append(h("h2", {}, `Each block in each policy, ${isRun ? "measured" : "predicted"}`),
      strip(d3.groups(kernels, block), columns, "Reorders count for the block that demands them. The fastest is bold; – is where nothing is left to run."),
      page.folded(`All ${kernels.length} kernels`, () => strip(kernels.map((each) => [each, [each]]), columns, null)));
  }

  // What is not named after a kernel.
  const border = new Map([...plan.inputs.map((each) => [each.name, `input ${each.name}`]), ["the caller", "results, for the caller"]]);

  function strip(rows, columns, caption) {
    const sums = ([title, members]) => ({ title, ns: columns.map(({ times }) => d3.sum(members, (each) => times.get(each) ?? 0)) });
    const cell = (ns, { ns: all }) => {
      const isLeast = ns > 0 && ns === d3.min(all);
      const text = ns > 0 ? time(ns) : "–";
      return [ns, h("div", { class: "measure" }, ns > 0 ? bar(ns / d3.max(all), isLeast ? "16c" : null) : null, h(isLeast ? "strong" : "span", {}, text))];
    };
    const total = sums(["the whole run", rows.flatMap(([, members]) => members)]);
    return table(["", ...columns.map(({ policy }) => policy)],
      [total, ...rows.map(sums)].map((row) => [name(border.get(row.title) ?? row.title), ...row.ns.map((ns) => cell(ns, row))]), caption);
  }

  root.append(headline());
  redrawFlame = page.figure(root, `The run by step, ${isMeasured ? "measured" : "predicted"}`, [
    `Above, blocks ${byNames ? "by the network's names" : "of the network, by its structure"}, then kernels; below, steps by the class of layout they write, reorders hatched. `,
    "A click on a block shows it alone, one on a step chooses its kernel; arrow keys walk, Escape shows the whole run.",
    page.legend([...new Set(steps.map((each) => each.family))]),
  ], flame);
  root.append(h("div", { class: "row" }, whole));
  followAddress();
  page.onAddress(followAddress);
  longest();
  kinds();
  roofline();
  predictions();
  perBlock();
});
