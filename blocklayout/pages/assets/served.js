"use strict";
// What if, where the page is served: pins are sent to the server, which makes the plan anew, and both are shown side
// by side. Pins are those of page.pins, where the view of a kernel collects them, or are written here.
(() => {
  if (!page.record.served) return;
  const { h, name, plain, time, bytes, percent, signed, table } = page;
  const { plan } = page.record;
  const token = new URLSearchParams(location.search).get("token");
  const listeners = [];
  if (page.pins === undefined) {
    page.pins = new Map();
    page.onPins = (listener) => listeners.push(listener);
  }

  page.view("whatif", "What if", (root) => {
    const chosen = h("ul", { class: "pins" });
    const said = h("p", { role: "status" });
    const result = h("div");
    const layout = h("input", { id: "pin-layout", list: "pin-layouts", size: 14, autocomplete: "off", required: true });
    const layouts = h("datalist", { id: "pin-layouts" });
    const kernel = h("input", { id: "pin-kernel", list: "pin-kernels", size: 28, autocomplete: "off", required: true, oninput: offer });
    const kernels = h("datalist", { id: "pin-kernels" }, plan.kernels.map((each) => h("option", { value: each.name })));
    const ask = h("button", { type: "button", id: "make-plan", onclick: make }, "Make the plan with these pins");

    // The layouts that the kernel's result was offered in.
    function offer() {
      const known = plan.kernels.find((each) => each.name === kernel.value);
      layouts.replaceChildren(...(known ? known.layouts : []).map((each) => h("option", { value: each })));
    }

    function add(event) {
      event.preventDefault();
      page.pins.set(kernel.value, layout.value);
      changed();
      kernel.value = "";
      layout.value = "";
      kernel.focus();
    }

    function remove(key) {
      page.pins.delete(key);
      changed();
      kernel.focus();
    }

    function changed() {
      for (const listener of listeners) listener();
      drawPins();
    }

    function drawPins() {
      chosen.replaceChildren(...Array.from(page.pins, ([key, wanted]) => h("li", {}, name(key), " in ", name(wanted), " ",
        h("button", { type: "button", "aria-label": `Remove the pin of ${plain(key)}`, onclick: () => remove(key) }, "Remove"))));
      ask.disabled = page.pins.size === 0;
    }

    async function make() {
      ask.disabled = true;
      said.className = "quiet";
      said.textContent = "The plan is being made …";
      try {
        const answer = await fetch("plan", { method: "POST", headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ pins: Object.fromEntries(page.pins), token }) });
        if (!answer.ok) throw new Error(await answer.text());
        result.replaceChildren(...compared(await answer.json()));
        said.textContent = "";
      } catch (error) {
        said.className = "bad";
        said.textContent = error instanceof TypeError ? "The server does not answer: has it ended?" : plain(error.message.trim());
      }
      ask.disabled = page.pins.size === 0;
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
      h("h2", {}, "With ", h("span", { class: "code" }, pins)),
      table(["", "as planned", "with these pins", "difference"], [
        numbers("predicted time", time, plan.cost_ns, made.plan.cost_ns, true),
        ...(inTurn === null ? [] : [numbers("measured time", time, inTurn.before_ns, inTurn.after_ns, true)]),
        numbers("steps", String, plan.steps.length, made.plan.steps.length),
        numbers("reorders", String, reorders(plan), reorders(made.plan)),
        numbers("bytes that reorders move", bytes, plan.reorder_nbytes, made.plan.reorder_nbytes),
        numbers("arena", bytes, plan.arena_nbytes, made.plan.arena_nbytes),
        numbers("padding", bytes, plan.padding_nbytes, made.plan.padding_nbytes),
      ]),
      inTurn === null ? h("p", { class: "quiet" }, "Times are predicted; nothing was run.") :
        h("p", { class: "quiet" }, `Measured in turn, ${inTurn.n_rounds} rounds: a run with these pins takes ${ratio(inTurn.ratio)} as long as one as planned.`),
      h("h2", {}, `Kernels computed otherwise: ${changes.kernels.length}`),
      changes.kernels.length === 0 ? null : table(["kernel", "as planned", "predicted", "with these pins", "predicted"],
        changes.kernels.map(({ name: kernel, before, after }) => [name(kernel), ...way(before), ...way(after)])),
      ...moved("Reorders gone", changes.reorders_gone),
      ...moved("Reorders new", changes.reorders_new),
    ].filter((each) => each !== null);
  }

  const reorders = (of) => of.steps.filter((each) => each.kind === "reorder").length + of.entries.filter((each) => each.is_reorder).length;
  const ratio = ({ median, low, high }) => `${page.digits(median, 2)} (${page.digits(low, 2)} to ${page.digits(high, 2)}) times`;

  function numbers(title, shown, before, after, isRelative = false) {
    const difference = after - before;
    const share = isRelative && before > 0 && difference !== 0 ? ` (${signed(percent(difference / before))})` : "";
    return [title, [before, shown(before)], [after, shown(after)], [difference, difference === 0 ? "0" : `${signed(shown(difference))}${share}`]];
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
