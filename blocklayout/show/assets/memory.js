"use strict";
// Where buffers lie in the arena and when, what padding wastes, and what packing makes of the weights.
page.view("memory", "Memory", (root) => {
  const { plan } = page.record;
  const { h, s, name, plain, time, bytes, percent, colour, table, bar, fitted } = page;
  const { memory } = plan;
  const family = (desc) => (desc === null ? "any" : plan.descs[desc].class);
  const layout = (desc) => (desc === null ? "" : plan.descs[desc].layout);
  const stepName = (number) => (number < 0 ? "before the first step" : `step ${number}`);
  const span = ({ first, last }) => (first === last ? stepName(first) : `${stepName(first)} to ${stepName(last)}`);
  const peakAt = memory.alive_nbytes.indexOf(d3.max(memory.alive_nbytes)) - 1;

  function kindOf(buffer) {
    if (buffer.within !== null) return `a part of ${plain(plan.buffers[buffer.within].name)}, which is written here and copied nowhere`;
    if (buffer.kind === "entry" && !plan.entries.some((each) => each.is_reorder && plan.buffers[each.buffer] === buffer)) {
      return "the caller's array where its strides fit, and a copy in the arena where they do not";
    }
    return null;
  }

  // Steps that write over what a buffer holds already.
  const overwriting = (buffer) => buffer.writers.slice(1);

  function facts(buffer) {
    const { padding_nbytes: padding = 0 } = buffer.desc === null ? {} : plan.descs[buffer.desc];
    const [first, ...more] = buffer.values.length ? buffer.values : [buffer.name];
    const waste = padding ? `, ${bytes(padding)} of them padding` : "";
    const over = overwriting(buffer).map((step) => `${stepName(step)} (${plain(plan.steps[step].kernel)})`).join(", ");
    return [
      h("strong", {}, name(first)), name(layout(buffer.desc)), `${bytes(buffer.nbytes)} from ${bytes(buffer.offset)} on${waste}`, span(buffer),
      more.length ? h("span", {}, "holds then, or is seen as: ", more.flatMap((each, index) => [index ? ", " : "", name(each)])) : null,
      over ? `written over in place by ${over}` : null, kindOf(buffer),
    ].filter((each) => each !== null);
  }

  function headline() {
    const slack = plan.arena_nbytes - plan.arena_lower_bound;
    const placed = slack === 0 ? "no placement is smaller"
      : `${percent(slack / plan.arena_lower_bound)} above the ${bytes(plan.arena_lower_bound)} that any placement takes`;
    const peak = peakAt < 0 ? "before the first step" : [`at step ${peakAt}, `, name(plan.steps[peakAt].kernel)];
    return h("ul", { class: "findings" },
      h("li", {}, h("strong", {}, `Arena ${bytes(plan.arena_nbytes)}`), `: values between steps; ${placed}. Most is in use `, peak, "."),
      h("li", {}, h("strong", {}, `Weights ${bytes(memory.weights_nbytes)}`), ` as packed, ${bytes(memory.weights_elements_nbytes)} of elements.`),
      h("li", {}, h("strong", {}, `Scratchpad ${bytes(plan.scratchpad_nbytes)}`), ": one for all steps, as large as the neediest asks."),
      h("li", {}, h("strong", {}, `Results ${bytes(memory.results_nbytes)}`), ": arrays made for the caller at each run, outside of the arena."),
    );
  }

  // Arena buffers, wholes before their parts, so that these lie on top.
  const placed = plan.buffers.filter((each) => (each.kind === "arena" || each.kind === "entry") && each.first !== null && each.nbytes > 0);
  const depth = (buffer) => (buffer.within === null ? 0 : 1 + depth(plan.buffers[buffer.within]));
  const drawn = d3.sort(placed, depth, (each) => each.first, (each) => each.offset);

  function arena(width) {
    const margin = { top: 20, right: 12, bottom: 34, left: 66 };
    const [aliveHeight, gap, height] = [90, 30, width < 560 ? 260 : 380];
    const total = margin.top + aliveHeight + gap + height + margin.bottom;
    const x = d3.scaleLinear([-1, plan.steps.length], [margin.left, width - margin.right]);
    const aliveY = d3.scaleLinear([0, plan.arena_nbytes], [margin.top + aliveHeight, margin.top]);
    const y = d3.scaleLinear([0, plan.arena_nbytes], [total - margin.bottom, total - margin.bottom - height]);
    const svg = d3.create("svg").attr("viewBox", `0 0 ${width} ${total}`).attr("width", width).attr("role", "group")
      .attr("aria-label", `The arena over time: ${drawn.length} buffers; the table below has the same`);
    svg.append("defs").append(() => hatch());

    axis(svg, aliveY, margin, width, 2);
    const area = d3.area().curve(d3.curveStepAfter).x(([step]) => x(step)).y0(aliveY(0)).y1(([, nbytes]) => aliveY(nbytes));
    const alive = [...memory.alive_nbytes, memory.alive_nbytes.at(-1)].map((nbytes, index) => [index - 1, nbytes]);
    svg.append("path").attr("d", area(alive)).attr("fill", "var(--quiet)").attr("fill-opacity", 0.25);
    svg.append("path").attr("d", area.lineY1()(alive)).attr("fill", "none").attr("stroke", "var(--text)").attr("stroke-width", 1.5);
    svg.append("text").attr("x", margin.left).attr("y", margin.top - 7).text(width < 560 ? "in use" : "bytes in use at each step");
    marked(svg, x, aliveY, margin, width);

    axis(svg, y, margin, width, 5);
    svg.append("text").attr("x", margin.left).attr("y", y.range()[1] - 7)
      .text(width < 560 ? "buffers, by place and step" : "buffers: place in the arena, and steps from the first to the last that touches them");
    const edge = (buffer) => Math.max(1.5, x(buffer.last + 1) - x(buffer.first) - 1);
    const tall = (buffer) => Math.max(1.5, y(0) - y(buffer.nbytes) - 1);
    const boxes = svg.append("g").selectAll("rect").data(drawn).join("rect")
      .attr("class", "buffer").attr("x", (each) => x(each.first) + 0.5).attr("y", (each) => y(each.offset + each.nbytes) + 0.5)
      .attr("width", edge).attr("height", tall)
      .attr("fill", (each) => `color-mix(in srgb, ${colour(family(each.desc))} 32%, var(--ground))`)
      .attr("stroke", (each) => (family(each.desc) === "any" ? "var(--quiet)" : colour(family(each.desc))))
      .attr("stroke-dasharray", (each) => (each.kind === "entry" ? "4 3" : null));
    const wholes = new Set(drawn.filter((each) => each.within !== null).map((each) => plan.buffers[each.within]));
    const over = svg.append("g").attr("pointer-events", "none");
    over.selectAll("rect").data(drawn.filter((each) => each.within !== null && !wholes.has(each))).join("rect")
      .attr("x", (each) => x(each.first) + 0.5).attr("y", (each) => y(each.offset + each.nbytes) + 0.5)
      .attr("width", edge).attr("height", tall).attr("fill", "url(#memory-part)");
    over.selectAll("line").data(drawn.flatMap((each) => overwriting(each).map((step) => ({ each, step })))).join("line")
      .attr("x1", ({ step }) => x(step)).attr("x2", ({ step }) => x(step))
      .attr("y1", ({ each }) => y(each.offset)).attr("y2", ({ each }) => y(each.offset + each.nbytes))
      .attr("stroke", "var(--text)").attr("stroke-width", 2);
    const text = (each) => (tall(each) < 15 || wholes.has(each) ? ""
      : fitted(each.values[0] ?? each.name, d3.max(room(each), ([a, b]) => b - a) - 8));
    over.selectAll("text").data(drawn.filter((each) => text(each) !== "")).join("text")
      .attr("x", (each) => d3.greatest(room(each), ([a, b]) => b - a)[0] + 4)
      .attr("y", (each) => y(each.offset + each.nbytes) + Math.min(14, tall(each) / 2 + 5)).text(text);
    // From left to right, the stretches between lines that stand in it.
    function room(each) {
      return d3.pairs([each.first, ...overwriting(each), each.last + 1].map((step) => x(step)));
    }

    svg.append("g").attr("transform", `translate(0,${total - margin.bottom})`)
      .call(d3.axisBottom(x).ticks(Math.max(3, width / 110)).tickFormat((step) => (Number.isInteger(step) && step >= 0 ? String(step) : "")).tickSizeOuter(0));
    svg.append("text").attr("x", width - margin.right).attr("y", total - 2).attr("text-anchor", "end").text("step");

    const marks = boxes.nodes();
    page.walk(svg.node(), marks, (index) => facts(drawn[index]), (index) => drawn[index].kernel !== null && page.select(drawn[index].kernel));
    highlight = () => boxes.classed("chosen", (each) => page.selected !== null && each.kernel === page.selected);
    highlight();
    return svg.node();
  }

  let highlight = () => {};
  page.onSelect(() => highlight());

  function hatch() {
    return s("pattern", { id: "memory-part", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("line", { x1: 0, y1: 0, x2: 0, y2: 7, stroke: "var(--text)", "stroke-opacity": 0.45, "stroke-width": 1.5 }));
  }

  // Bytes at the left, at round binary numbers, and lines across.
  function axis(svg, scale, margin, width, n) {
    const [low, high] = scale.domain();
    const unit = 1024 ** Math.floor(Math.log(Math.max(high, 1)) / Math.log(1024));
    const ticks = d3.ticks(low / unit, high / unit, n).map((each) => each * unit);
    svg.append("g").attr("transform", `translate(${margin.left},0)`)
      .call(d3.axisLeft(scale).tickValues(ticks).tickFormat((each) => (each === 0 ? "0" : page.tick(bytes(each)))).tickSizeOuter(0))
      .call((group) => group.selectAll(".tick line").clone().attr("x2", width - margin.left - margin.right).attr("stroke-opacity", 0.15));
  }

  // The arena's size and the peak, at their lines.
  function marked(svg, x, y, margin, width) {
    const right = width - margin.right;
    const isTight = plan.arena_nbytes === plan.arena_lower_bound;
    const line = (nbytes, dash) => svg.append("line").attr("x1", margin.left).attr("x2", right).attr("y1", y(nbytes)).attr("y2", y(nbytes))
      .attr("stroke", "var(--text)").attr("stroke-dasharray", dash);
    line(plan.arena_nbytes, null);
    if (!isTight) line(plan.arena_lower_bound, "2 3");
    const most = isTight ? " = most in use" : `, ${width < 560 ? "" : "most in use, "}dotted: ${bytes(plan.arena_lower_bound)}`;
    svg.append("text").attr("x", right).attr("y", margin.top - 7).attr("text-anchor", "end").text(`arena ${bytes(plan.arena_nbytes)}${most}`);
    svg.append("circle").attr("cx", (x(peakAt) + x(peakAt + 1)) / 2).attr("cy", y(memory.alive_nbytes[peakAt + 1])).attr("r", 3.5).attr("fill", "var(--text)");
  }

  function key() {
    const shown = [...new Set(drawn.map((each) => family(each.desc)))];
    const legend = page.legend(shown);
    const sign = (text, ...shapes) => legend.append(h("span", {}, s("svg", { width: 16, height: 12, "aria-hidden": "true" }, shapes), ` ${text}`));
    const upright = s("line", { x1: 8, y1: 1, x2: 8, y2: 11, stroke: "currentColor", "stroke-width": 2 });
    const box = (more) => s("rect", { x: 1, y: 1, width: 13, height: 10, fill: "none", stroke: "currentColor", ...more });
    if (drawn.some((each) => each.within !== null)) sign("a part of a larger buffer, written in place there", box({ fill: "url(#memory-part)" }));
    if (drawn.some((each) => overwriting(each).length)) sign("from here on written over in place", box({}), upright);
    if (drawn.some((each) => each.kind === "entry")) sign("an input: the caller's own array where it fits", box({ "stroke-dasharray": "4 3" }));
    return legend;
  }

  function buffersTable() {
    return table(["value", "kind", "layout", "bytes", "padding", "from", "in use", "notes"], drawn.map((each) => [
      name(each.values[0] ?? each.name), each.kind === "entry" ? "input" : each.within === null ? "buffer" : "part", name(layout(each.desc)),
      [each.nbytes, bytes(each.nbytes)], padded(each.desc), [each.offset, bytes(each.offset)], span(each),
      overwriting(each).length ? "written over in place" : "",
    ]));
  }

  const padded = (desc) => [desc === null ? 0 : plan.descs[desc].padding_nbytes ?? 0, bytes(desc === null ? 0 : plan.descs[desc].padding_nbytes ?? 0)];

  function padding() {
    root.append(h("h2", {}, "Padding"));
    const written = plan.steps.flatMap((step) => step.operands.filter(({ argument }) => argument === "dst")
      .map(({ buffer, desc }) => ({ what: "result", of: plan.buffers[buffer].values[0] ?? plan.buffers[buffer].name, kernel: step.kernel, desc })));
    const packed = plan.constants.map((each) => ({ what: "weights", of: each.name, kernel: each.kernel, desc: each.desc }));
    const wasteful = [...written, ...packed].filter(({ desc }) => plan.descs[desc].padding_nbytes > 0)
      .sort((a, b) => plan.descs[b.desc].padding_nbytes - plan.descs[a.desc].padding_nbytes);
    if (wasteful.length === 0) {
      root.append(h("p", {}, "No result and no packed weights hold padding: every channel count fits its layout's blocks."));
      return;
    }
    const most = plan.descs[wasteful[0].desc].padding_nbytes;
    const inWeights = d3.sum(packed, ({ desc }) => plan.descs[desc].padding_nbytes);
    const beside = percent(plan.padding_multiply_adds / plan.multiply_adds);
    root.append(
      h("p", {}, `Results hold ${bytes(plan.padding_nbytes)} of zeros, packed weights ${bytes(inWeights)}, where channels are rounded up to a layout's block.`,
        plan.padding_multiply_adds ? ` Multiply-adds on padding: ${page.count(plan.padding_multiply_adds)}, ${beside} beside the network's own.` : ""),
      table(["tensor", "padding", "of its bytes", ""], wasteful.slice(0, 12).map(({ what, of, kernel, desc }) => {
        const { padding_nbytes: waste, nbytes } = plan.descs[desc];
        const title = page.entitled(of, `${what} of ${kernel}`, layout(desc));
        return [title, [waste, bytes(waste)], [waste / nbytes, percent(waste / nbytes)], bar(waste / most, family(desc))];
      }), wasteful.length > 12 ? `The 12 largest of ${wasteful.length} tensors with padding.` : null));
  }

  function weights() {
    root.append(h("h2", {}, "Weights, before and after packing"));
    const total = (constants, key) => d3.sum(constants, ({ desc }) => plan.descs[desc][key]);
    const rows = d3.sort(d3.groups(plan.constants, (each) => each.kernel), ([, constants]) => -total(constants, "nbytes"));
    if (rows.length === 0) {
      root.append(h("p", {}, "Nothing is packed: the network has no weights."));
      return;
    }
    const most = total(rows[0][1], "nbytes");
    const grown = memory.weights_nbytes - memory.weights_elements_nbytes;
    const make = (shown) => table(["kernel", "elements", "packed", "grown", ""], shown.map(([kernel, constants]) => {
      const [before, after] = [total(constants, "elements_nbytes"), total(constants, "nbytes")];
      return [page.entitled(kernel, ...constants.map((each) => `${each.name} as ${layout(each.desc)}`)), [before, bytes(before)], [after, bytes(after)],
        [after - before, after === before ? "–" : page.signed(percent(after / before - 1))], bar(after / most, null, before / most)];
    }));
    root.append(
      h("p", {}, `${bytes(memory.weights_elements_nbytes)} of elements, in the data types they are computed in, are ${bytes(memory.weights_nbytes)} as packed`,
        grown ? `: ${bytes(grown)} more, for padding and what the library keeps with them.` : ": packing adds nothing.",
        " Each bar is the packed size; the mark on it is that of the elements."),
      make(rows.slice(0, 10)), rows.length > 10 ? page.folded(`All ${rows.length} kernels with weights`, () => make(rows)) : "");
  }

  function scratchpad() {
    root.append(h("h2", {}, "Scratchpad"));
    const asking = plan.steps.map((step, number) => ({ step, number })).filter(({ step }) => step.scratchpad_nbytes > 0);
    const needy = d3.sort(asking, ({ step }) => -step.scratchpad_nbytes);
    if (needy.length === 0) {
      root.append(h("p", {}, "No step asks for any."));
      return;
    }
    root.append(h("p", {}, `${bytes(plan.scratchpad_nbytes)}, shared; ${needy.length} of ${plan.steps.length} steps ask for some.`),
      table(["step", "asks for", "predicted", ""], needy.slice(0, 8).map(({ step, number }) => [
        page.entitled(step.kernel, `step ${number}`, step.impl), [step.scratchpad_nbytes, bytes(step.scratchpad_nbytes)], [step.cost_ns, time(step.cost_ns)],
        bar(step.scratchpad_nbytes / plan.scratchpad_nbytes),
      ])));
  }

  root.append(headline());
  if (drawn.length === 0) root.append(h("p", {}, "The arena is empty: no value outlives its step."));
  else {
    page.figure(root, "The arena over time", ["Hover over a buffer, or walk with the arrow keys; a click chooses the kernel that writes it.", key()], arena);
    root.append(page.folded(`All ${drawn.length} buffers of the arena`, buffersTable));
  }
  padding();
  weights();
  scratchpad();
});
