"use strict";
// One kernel, in page.panel: what it computes and by what, its operands, its neighbours, what else it could be, and the
// pins that the reader tries, as a command and as Python.
(() => {
  const { plan, profile, nodes, source, shapes, threads } = page.record;
  const { h, name, plain, time, bytes, percent, signed, panel } = page;
  const numbers = new Map(plan.kernels.map((kernel, index) => [kernel.name, index]));
  const timed = new Map(profile === null ? [] : profile.steps.filter((each) => each.number !== null).map((each) => [each.number, each]));
  const asRead = new Map((nodes ?? []).map((each) => [each.name, each]));
  const ioLayout = plan.io_layout.map((each) => [each.name, each.format]);
  const precision = [...new Map(plan.precision.map((each) => [each.key, each.wanted]))];
  const heading = h("h2", { tabindex: "-1" });
  const ways = h("p", { class: "ways", hidden: true },
    h("button", { type: "button", class: "to-network", onclick: () => page.open("network") }, "Show it in the network"), " ",
    h("button", { type: "button", onclick: close }, "Close"));

  // The button is gone then; the tab of the view has the focus.
  function close() {
    page.select(null);
    document.querySelector("[role='tab'][aria-selected='true']").focus();
  }
  const body = h("div", {});
  const reorder = h("div", { class: "chosen-reorder", hidden: true, "aria-live": "polite" });
  const tried = h("div", { class: "tried" });

  const extents = (dims) => (dims.length === 0 ? "a scalar" : dims.join(" × "));
  const more = (ns) => `${signed(time(ns))} (${signed(percent(ns / plan.cost_ns, 2))})`;

  function section(title, ...content) {
    return h("section", {}, h("h3", {}, title), content);
  }

  // Pairs of a term and what is said of it; pairs without the second are left out.
  function facts(pairs) {
    return h("dl", {}, pairs.filter(([, said]) => said !== null).map(([term, said]) => [h("dt", {}, term), h("dd", {}, said)]));
  }

  function link(kernel) {
    if (kernel === null) return "the caller";
    return h("button", { type: "button", class: "link", onclick: () => {
      page.select(kernel);
      heading.focus();
    } }, name(plan.kernels[kernel].name));
  }

  function layout(number) {
    const desc = plan.descs[number];
    return h("span", { class: "layout" }, page.swatch(desc.class), desc.layout);
  }

  // What runs for a kernel, step by step.
  function work(kernel) {
    if (kernel.steps.length === 0) {
      return section("How it is computed", h("p", {}, kernel.is_view ?
        `It moves nothing: ${kernel.chosen.text}.` : "No step of its own: it is one primitive with its neighbour."));
    }
    return section("How it is computed", kernel.steps.map((number) => {
      const step = plan.steps[number];
      const measured = timed.get(number);
      return facts([
        ["Primitive", [name(step.primitive), h("span", { class: "quiet" }, `, step ${number}`)]],
        ["By", [h("code", {}, step.impl), step.impl_words === "" ? null : h("span", { class: "quiet" }, ` ${step.impl_words}`)]],
        ["Predicted", `${time(step.cost_ns)} ${step.priced === "measured" ? "as measured alone" : "by the model"}, ${percent(step.cost_ns / plan.cost_ns)} of the network`],
        ["Measured", measured === undefined ? null : [`${time(measured.ns)} in place, ${percent(measured.ns / profile.ns)} of a run`,
          h("span", { class: "quiet" }, ` ${page.spread(measured)}`)]],
        ["Of the ceiling", (measured?.ceiling_share ?? null) === null ? null :
          [percent(measured.ceiling_share, 0), h("span", { class: "quiet" }, " of what the machine can do, by arithmetic or by traffic")]],
        ["Why so", name(step.reason)],
        ["Scratchpad", step.scratchpad_nbytes === 0 ? null : bytes(step.scratchpad_nbytes)],
      ]);
    }));
  }

  // A copy in another layout that is made for a reader.
  function copy(edge) {
    if (edge.reorder === null && edge.entry === null) return null;
    const made = edge.reorder === null ? plan.entries[edge.entry] : plan.steps[edge.reorder];
    const measured = edge.reorder === null ? undefined : timed.get(edge.reorder);
    const shared = made.readers.length > 1 ? `, shared by ${made.readers.length} readers` : "";
    return h("div", { class: "copy" },
      h("span", {}, page.swatch("reorder"), `reorder: ${time(made.cost_ns)}`,
        measured === undefined ? "" : `, measured ${time(measured.ns)}`, `, ${bytes(made.nbytes)}${shared}`),
      made.without_ns === null ? null : h("div", { class: "quiet" }, `the cheapest network without it costs ${more(made.without_ns + plan.declined_ns)}`),
      h("div", { class: "quiet" }, name(made.reason)));
  }

  function neighbours(index) {
    const as = (edge) => (edge.written === edge.read ? layout(edge.read) : [layout(edge.written), " → ", layout(edge.read)]);
    const list = (title, edges, said) => (edges.length === 0 ? null :
      [h("h4", {}, title), h("ul", {}, edges.map((edge) => h("li", {}, h("div", { class: "row" }, said(edge), h("span", {}, as(edge))), copy(edge))))]);
    return section("Neighbours",
      list("It reads", plan.edges.filter((each) => each.reader === index), (edge) => h("span", {}, name(edge.value), " of ", link(edge.source))),
      list("Read by", plan.edges.filter((each) => each.source === index), (edge) => h("span", {}, link(edge.reader), " (", name(edge.value), ")")));
  }

  function operands(kernel) {
    const order = ["src", "weights", "bias", "post_op", "dst"];
    const rank = ({ argument }) => (order.findIndex((each) => argument.startsWith(each)) + order.length + 1) % (order.length + 1);
    const items = kernel.steps.flatMap((number) => d3.sort(plan.steps[number].operands, rank).map((operand) => operandItem(
      operand, kernel.steps.length > 1 ? `step ${number}` : null)));
    return items.length === 0 ? null : section("Operands", h("ul", { class: "operands" }, items));
  }

  function operandItem(operand, where) {
    const desc = plan.descs[operand.desc];
    const isPadded = desc.padded_dims.some((extent, at) => extent !== desc.dims[at]);
    const blocks = desc.inner_blocks.map(([size, dim]) => `${size} of dimension ${dim}`).join(", then ");
    return h("li", {},
      h("div", { class: "row" }, h("strong", {}, operand.argument), layout(operand.desc), h("span", {}, h("span", { class: "quiet" }, "in "), name(operand.value)),
        where === null ? null : h("span", { class: "quiet" }, where)),
      h("div", {}, `${desc.dtype} ${extents(desc.dims)}`, isPadded ? `, padded to ${extents(desc.padded_dims)}` : ""),
      h("div", { class: "quiet" }, `strides ${desc.strides.join(", ")}`, blocks === "" ? "" : `; blocks of ${blocks}`),
      h("div", {}, bytes(desc.nbytes), desc.padding_nbytes === 0 ? ", no padding" :
        `, of which ${bytes(desc.padding_nbytes)} padding (${percent(desc.padding_nbytes / desc.nbytes)})`));
  }

  function onnxNodes(kernel) {
    if (nodes === null) {
      return section("Nodes of the model", h("p", {}, kernel.nodes.map((each, at) => [at ? ", " : "", name(each)])),
        h("p", { class: "quiet" }, "Their attributes are not known: the model was not at hand when this page was made."));
    }
    const operand = (each) => h("li", {}, each === null ? "–" : [name(each.name),
      h("span", { class: "quiet" }, ` ${each.dtype} ${extents(each.dims)}${each.is_constant ? ", constant" : ""}`)]);
    return section("Nodes of the model", kernel.nodes.map((each) => {
      const node = asRead.get(each);
      if (node === undefined) return h("p", {}, name(each), h("span", { class: "quiet" }, " made by a pass"));
      return h("details", { open: kernel.nodes.length <= 3 },
        h("summary", {}, h("strong", {}, name(node.op_type)), " ", name(node.name)),
        facts([
          ...node.attributes.map(([attribute, text]) => [name(attribute), name(text)]),
          ["inputs", h("ul", {}, node.inputs.map(operand))], ["outputs", h("ul", {}, node.outputs.map(operand))],
        ]));
    }));
  }

  // What a kernel could be instead; layouts that a pin can name are chosen by a radio button.
  function alternatives(kernel, index) {
    const pinned = plan.pins.find((each) => each.kernel === kernel.name);
    const isOffered = kernel.alternatives.some((each) => each.pin !== null);
    const radio = (pin, label) => h("label", {}, h("input", {
      type: "radio", name: `pin-${index}`, value: pin ?? "", checked: (page.pins.get(kernel.name) ?? null) === pin,
      onchange: () => page.pin(kernel.name, pin),
    }), " ", label);
    const rows = [
      [
        described(kernel.chosen, isOffered ? radio(null, layout(kernel.chosen.dst)) : layout(kernel.chosen.dst), "as planned: "),
        [kernel.chosen.cost_ns, time(kernel.chosen.cost_ns)], [0, "–"],
      ],
      ...kernel.alternatives.map((each) => [
        described(each, each.pin === null ? layout(each.dst) : radio(each.pin, layout(each.dst)), each.pin === null ? "no pin asks for it: " : ""),
        [each.cost_ns, time(each.cost_ns)],
        [each.added_ns, h("div", {}, signed(time(each.added_ns)), h("div", { class: "quiet" }, signed(percent(each.added_ns / plan.cost_ns, 2))))],
      ]),
    ];
    return section("What else it could be, and what if",
      pinned === undefined ? null : h("p", {}, "Pinned to ", h("code", {}, pinned.wanted), " by ", h("code", {}, name(pinned.key)),
        ": other layouts were not on offer."),
      kernel.alternatives.length === 0 ? h("p", {}, "Nothing else was on offer.") : page.table(
        ["result in", "own time", "network"], rows,
        `Network: how much more the cheapest whole network with it costs${plan.is_exact ? "" : ", at most"}, everything else chosen anew.`));
  }

  function described(way, label, what) {
    const other = [...new Set(way.sources.map((each) => plan.descs[each].layout))].filter((each) => each !== plan.descs[way.dst].layout);
    return h("div", { class: "way" }, label, h("div", { class: "quiet" }, what, h("code", {}, way.impls.join(" + ") || way.text),
      other.length === 0 ? null : ` reads ${other.join(", ")}`));
  }

  // The pins that are tried: what they cost, if that is known, and how to have them.
  function drawTried() {
    const isReset = page.pins.size === plan.pins.length && plan.pins.every(({ key, wanted }) => page.pins.get(key) === wanted);
    const items = [...page.pins].map(([key, wanted]) => h("li", {},
      numbers.has(key) ? link(numbers.get(key)) : name(key), " = ", h("code", {}, wanted), " ",
      h("button", { type: "button", "aria-label": `Remove the pin of ${plain(key)}`, onclick: () => undone(() => page.pin(key, null)) }, "remove")));
    tried.replaceChildren(
      h("h3", { tabindex: "-1" }, "Pins"),
      items.length === 0 ? h("p", {}, "None yet. Choose another layout above, for this kernel or for several.") : h("ul", {}, items),
      ...(items.length === 0 && isReset ? [] : [
        h("p", { class: "outcome" }, outcome()),
        script("In a shell", shellLine()),
        script("In Python", pythonLines()),
        ...(page.record.served ? [h("button", { type: "button", disabled: isReset, onclick: () => page.planAnew() }, "Plan anew"), " "] : []),
        h("button", { type: "button", disabled: isReset, onclick: () => undone(page.resetPins) }, "Reset"),
      ]));
  }

  // The button that undoes something is gone then; what it stood under has the focus.
  function undone(change) {
    change();
    tried.querySelector("h3").focus();
  }

  // What the pins cost; only planning anew prices several together.
  function outcome() {
    const before = new Map(plan.pins.map(({ key, wanted }) => [key, wanted]));
    const added = [...page.pins].filter(([key, wanted]) => before.get(key) !== wanted);
    const removed = [...before.keys()].filter((key) => !page.pins.has(key));
    if (added.length === 0 && removed.length === 0) return `This plan has them: ${time(plan.cost_ns)}, without them ${time(plan.unpinned_ns)}.`;
    if (page.pins.size === 0) return `The whole network without pins: ${time(plan.unpinned_ns)}, ${more(plan.unpinned_ns - plan.cost_ns)}.`;
    if (added.length > 1 || removed.length > 0) return "Several changes are priced together only by planning anew, as these do:";
    const [[key, wanted]] = added;
    const found = plan.kernels[numbers.get(key)]?.alternatives.find((each) => each.pin === wanted);
    if (found === undefined) return "Its price is not known here: plan anew.";
    const about = plan.is_exact ? "about" : "at most";
    return [
      h("strong", {}, `The whole network: ${about} ${time(plan.cost_ns + found.added_ns)}, ${more(found.added_ns)}.`),
      " Planning anew asks again what is on offer and which gains are sure enough, and may come out a little off.",
      plan.policy === "auto" ? "" : ` That is with all other layouts free; with layout ${plan.policy} only planning anew tells.`,
    ];
  }

  // A word of a POSIX shell; characters that are not seen are spelt out, which bash, zsh and ksh read.
  function shellWord(text, isBare = true) {
    if (isBare && /^[\w@%+=:,./-]+$/.test(text)) return text;
    const escaped = plain(text.replace(/\\/g, "\\\\").replace(/'/g, "\\'"));
    return plain(text) === text ? `'${text.replace(/'/g, "'\\''")}'` : `$'${escaped}'`;
  }

  function shellLine() {
    const model = source === null ? "MODEL" : shellWord(source.startsWith("-") ? `./${source}` : source);
    const given = [
      ...shapes.map((each) => `--shape=${each.name}=${each.dims.join("x")}`),
      ...ioLayout.map(([key, format]) => `--io-layout=${key}=${format}`), ...precision.map(([key, dtype]) => `--precision=${key}=${dtype}`),
    ].map((each) => shellWord(each));
    const wanted = [...page.pins].map(([key, layout]) =>
      key.startsWith("-") ? shellWord(`--pin=${key}=${layout}`) : `--pin ${shellWord(`${key}=${layout}`, false)}`);
    return ["blocklayout show", model, ...options("--", " "), ...given, ...wanted].join(" ");
  }

  function pythonLines() {
    const text = (each) => plain(JSON.stringify(each));
    const dict = (entries) => `{${entries.map(([key, value]) => `${text(key)}: ${text(value)}`).join(", ")}}`;
    const isOfZoo = source !== null && source.startsWith("zoo:");
    const size = isOfZoo ? shapes.map(({ dims }) => `, batch=${dims[0]}, size=${text(dims.slice(Math.min(2, dims.length - 1)))}`) : [];
    const model = isOfZoo ? `zoo.build(${text(source.slice(4))}${size.join("")})` : text(source ?? "MODEL");
    const given = [
      ["shapes", isOfZoo ? [] : shapes.map((each) => [each.name, each.dims])],
      ["io_layout", ioLayout], ["precision", precision], ["pin", [...page.pins]],
    ].filter(([, entries]) => entries.length > 0).map(([option, entries]) => `${option}=${dict(entries)}`);
    return [
      "import blocklayout as bl",
      ...(isOfZoo ? ["from blocklayout import zoo"] : []),
      `session = bl.load(${[model, ...options("", "=", text), ...given].join(", ")})`,
    ].join("\n");
  }

  // What the plan was asked for beside layouts, as arguments.
  function options(before, between, quoted = (value) => value) {
    const asked = [["layout", plan.policy, "auto"], ["dtype", plan.dtype, "f32"], ["threads", threads, null]];
    return asked.filter(([, value, usual]) => value !== usual).map(([option, value]) => `${before}${option}${between}${quoted(value)}`);
  }

  function script(title, text) {
    const code = h("pre", { tabindex: "0" }, text);
    const said = h("span", { role: "status" });
    const select = () => {
      getSelection().selectAllChildren(code);
      said.textContent = "selected: copy it by Ctrl+C";
    };
    const button = h("button", { type: "button", "aria-label": `Copy: ${title}`, onclick: () => {
      if (navigator.clipboard === undefined) select();
      else navigator.clipboard.writeText(text).then(() => { said.textContent = "copied"; }, select);
    } }, "Copy");
    return h("div", { class: "script" }, h("div", { class: "row" }, h("span", {}, title), button, said), code);
  }

  function fused(kernel) {
    const parts = kernel.nodes.map((each, at) => [at ? ", " : "", name(each), asRead.has(each) ? h("span", { class: "quiet" }, " ", name(asRead.get(each).op_type)) : null]);
    return h("p", {}, h("strong", {}, kernel.operator), kernel.nodes.length > 1 ? ", one kernel of " : " of ", parts);
  }

  function draw(index) {
    const kernel = plan.kernels[index];
    chooser.value = String(index);
    heading.replaceChildren(name(kernel.name));
    [heading.hidden, ways.hidden] = [false, false];
    const predicted = d3.sum(kernel.steps, (number) => plan.steps[number].cost_ns);
    announced.textContent = `${plain(kernel.name)}: ${kernel.operator}, ${time(predicted)}`;
    body.replaceChildren(...[
      fused(kernel), work(kernel), alternatives(kernel, index), tried, neighbours(index), operands(kernel), onnxNodes(kernel),
    ].filter((each) => each !== null));
  }

  const announced = h("p", { class: "unseen", role: "status" });
  const chooser = h("select", { id: "kernel", onchange: () => page.select(Number(chooser.value)) },
    h("option", { value: "", disabled: true, selected: true }, "choose one"),
    plan.kernels.map((kernel, index) => h("option", { value: String(index) }, page.name(kernel.name).textContent)));
  panel.append(reorder, h("p", { class: "chooser" }, h("label", { for: "kernel" }, "Kernel"), " ", chooser), announced, heading, ways, body);

  function drawNone() {
    chooser.value = "";
    [heading.hidden, ways.hidden] = [true, true];
    body.replaceChildren(h("p", { class: "quiet" }, "Choose a kernel to see what computes it, what else could, and what a pin would cost."), tried);
  }
  drawNone();
  page.onSelect((kernel) => {
    const chosen = planGraph.nodes.get(page.reorder);
    reorder.hidden = chosen === undefined;
    if (!reorder.hidden) reorder.replaceChildren(h("h2", {}, page.swatch("reorder"), "Reorder"), planFacts.reorderFacts(chosen));
    if (kernel === null) drawNone();
    else draw(kernel);
  });
  page.onPins(() => {
    drawTried();
    announced.textContent = tried.querySelector(".outcome")?.textContent ?? "No pins";
    if (page.selected !== null) checkRadios(plan.kernels[page.selected]);
  });
  drawTried();

  // Buttons follow pins that were removed elsewhere; drawing them anew would take the focus away.
  function checkRadios(kernel) {
    for (const button of panel.querySelectorAll("input[type=radio]")) button.checked = button.value === (page.pins.get(kernel.name) ?? "");
  }
})();
