"use strict";
// What if, where the page is served: the pins of page.pins are sent to the server, which makes the plan anew, and both
// plans are shown side by side.
(() => {
  if (!page.record.served) return;
  const { h, name, plain, time, bytes, percent, signed, table } = page;
  const { plan } = page.record;
  const token = new URLSearchParams(location.search).get("token");
  const own = new Map(plan.pins.map(({ key, wanted }) => [key, wanted]));

  page.view("whatif", "What if", (root) => {
    const chosen = h("ul", { class: "pins" });
    const said = h("p", { role: "status" });
    const result = h("div");
    const layout = h("input", { id: "pin-layout", list: "pin-layouts", size: 14, autocomplete: "off", required: true });
    const layouts = h("datalist", { id: "pin-layouts" });
    const kernel = h("input", { id: "pin-kernel", list: "pin-kernels", size: 28, autocomplete: "off", required: true, oninput: offer });
    const kernels = h("datalist", { id: "pin-kernels" }, plan.kernels.map((each) => h("option", { value: each.name })));
    let isAsking = false;
    const ask = h("button", { type: "button", id: "make-plan", onclick: make }, "Make the plan with these pins");

    // The layouts that the kernel's result was offered in.
    function offer() {
      const known = plan.kernels.find((each) => each.name === kernel.value);
      layouts.replaceChildren(...(known ? known.layouts : []).map((each) => h("option", { value: each })));
    }

    function add(event) {
      event.preventDefault();
      page.pin(kernel.value, layout.value);
      kernel.value = "";
      layout.value = "";
      kernel.focus();
    }

    function remove(key) {
      page.pin(key, null);
      kernel.focus();
    }

    const isOwn = () => page.pins.size === own.size && Array.from(page.pins).every(([key, wanted]) => own.get(key) === wanted);

    function drawPins() {
      chosen.replaceChildren(...Array.from(page.pins, ([key, wanted]) => h("li", {}, name(key), " in ", name(wanted), " ",
        h("button", { type: "button", "aria-label": `Remove the pin of ${plain(key)}`, onclick: () => remove(key) }, "Remove"))));
      ask.disabled = isOwn();
    }

    async function make() {
      if (isAsking) return;
      isAsking = true;
      say("quiet", "The plan is being made …");
      const body = JSON.stringify({ pins: Object.fromEntries(page.pins), token });
      const answer = await fetch("plan", { method: "POST", headers: { "Content-Type": "application/json" }, body }).catch(() => null);
      if (answer === null) {
        say("bad", "The server does not answer: has it ended?");
      } else if (!answer.ok) {
        say("bad", plain((await answer.text()).trim()));
      } else {
        result.replaceChildren(...compared(await answer.json()));
        say("quiet", "Both plans are below.");
      }
      isAsking = false;
    }

    function say(kind, text) {
      said.className = kind;
      said.textContent = text;
    }

    root.append(
      h("h2", {}, "What if these kernels came in other layouts?"),
      h("form", { class: "pin", onsubmit: add },
        h("label", {}, "Kernel ", kernel), h("label", {}, "in layout ", layout), h("button", { type: "submit" }, "Pin"), kernels, layouts),
      chosen, ask, said, result);
    page.onPins(drawPins);
    drawPins();
  });

  // Both plans: in numbers, then what differs.
  function compared(made) {
    const { changes, in_turn: inTurn } = made;
    const pins = made.plan.pins.map(({ key, wanted }) => `${plain(key)} in ${plain(wanted)}`).join(", ");
    return [
      h("h2", {}, "With ", h("span", { class: "code" }, pins || "no pins")),
      table(["", "planned", "pinned", "difference"], [
        numbers("predicted time", time, plan.cost_ns, made.plan.cost_ns, true),
        ...(inTurn === null ? [] : [measured(inTurn)]),
        numbers("steps", String, plan.steps.length, made.plan.steps.length),
        numbers("reorders", String, reorders(plan), reorders(made.plan)),
        numbers("bytes that reorders move", bytes, plan.reorder_nbytes, made.plan.reorder_nbytes),
        numbers("arena", bytes, plan.arena_nbytes, made.plan.arena_nbytes),
        numbers("padding", bytes, plan.padding_nbytes, made.plan.padding_nbytes),
      ]),
      h("p", { class: "quiet" }, inTurn === null ? "Times are predicted; nothing was run." :
        `Measured in turn: medians of ${inTurn.n_rounds} rounds; their difference is that within a round, from the least to the most.`,
      inTurn !== null && inTurn.ratio.low < 1 && inTurn.ratio.high > 1 ? " The rounds disagree which plan is the faster." : ""),
      h("h2", {}, `Kernels computed otherwise: ${changes.kernels.length}`),
      changes.kernels.length === 0 ? null : table(["kernel", "planned", "predicted", "pinned", "predicted"],
        changes.kernels.map(({ name: kernel, before, after }) => [name(kernel), ...way(before), ...way(after)])),
      ...moved("Reorders gone", changes.reorders_gone),
      ...moved("Reorders new", changes.reorders_new),
    ].filter((each) => each !== null);
  }

  const reorders = (of) => of.steps.filter((each) => each.kind === "reorder").length + of.entries.filter((each) => each.is_reorder).length;

  function measured({ before_ns: before, after_ns: after, ratio }) {
    const [median, low, high] = [ratio.median, ratio.low, ratio.high].map((each) => signed(percent(each - 1, 0)).replace(/^[−+]0%$/, "0%"));
    return ["measured time", [before, time(before)], [after, time(after)], difference(ratio.median - 1, median, `${low} to ${high}`)];
  }

  function numbers(title, shown, before, after, isRelative = false) {
    const more = after - before;
    const share = isRelative && before > 0 && more !== 0 ? signed(percent(more / before)) : null;
    return [title, [before, shown(before)], [after, shown(after)], difference(more, more === 0 ? "0" : signed(shown(more)), share)];
  }

  function difference(value, text, more) {
    return [value, h("div", {}, text, more === null ? null : h("div", { class: "quiet" }, more))];
  }

  function way(of) {
    return of === null ? ["–", [-1, "–"]] : [
      h("div", {}, `${of.reads.join(", ")} → ${of.writes}`, h("div", { class: "quiet" }, name(of.impls.join(" + ")))),
      [of.cost_ns, time(of.cost_ns)],
    ];
  }

  function moved(title, reorders) {
    return [
      h("h2", {}, `${title}: ${reorders.length}`),
      reorders.length === 0 ? null : table(["value", "layouts", "read by", "bytes", "predicted"], reorders.map((each) => [
        name(each.value), `${each.src} → ${each.dst}`, name(each.readers.join(", ")), [each.nbytes, bytes(each.nbytes)], [each.cost_ns, time(each.cost_ns)],
      ])),
    ];
  }
})();
