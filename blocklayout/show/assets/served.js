"use strict";
// What if, where the page is served: the pins of page.pins are sent to the server, which makes the plan anew, and both
// plans are shown side by side; page.planAnew does so from anywhere.
(() => {
  page.planAnew = null;
  if (!page.record.served) return;
  const EVERY_MS = 250;
  let make = null;
  page.planAnew = () => {
    page.open("whatif");
    make();
  };
  const { h, name, plain, time } = page;
  const { plan } = page.record;
  const token = new URLSearchParams(location.search).get("token");
  const own = new Map(plan.pins.map(({ key, wanted }) => [key, wanted]));

  page.view("whatif", "What if", (root) => {
    const chosen = h("ul", { class: "pins" });
    const said = h("p", { role: "status" });
    const bar = h("progress", { hidden: true, "aria-label": "The plan is being made" });
    const result = h("div");
    const layout = h("input", { id: "pin-layout", list: "pin-layouts", size: 14, autocomplete: "off", required: true });
    const layouts = h("datalist", { id: "pin-layouts" });
    const kernel = h("input", { id: "pin-kernel", list: "pin-kernels", size: 28, autocomplete: "off", required: true, oninput: offer });
    const kernels = h("datalist", { id: "pin-kernels" }, plan.kernels.map((each) => h("option", { value: each.name })));
    let isAsking = false;
    const ask = h("button", { type: "button", id: "make-plan", onclick: () => make() }, "Plan anew with these pins");

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
      ask.disabled = isOwn() || isAsking;
    }

    // The server's stage, and for how long it has been asked, until it answers.
    async function tellProgress(began) {
      while (isAsking) {
        const stage = await fetch(`progress?${new URLSearchParams({ token })}`).then((answer) => (answer.ok ? answer.text() : "")).catch(() => "");
        if (isAsking) say("quiet", `The plan is being made: ${plain(stage) || "waiting"}, ${time(1e6 * (performance.now() - began))}`);
        await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
      }
    }

    make = async () => {
      if (isAsking) return;
      isAsking = true;
      ask.disabled = true;
      bar.hidden = false;
      tellProgress(performance.now());
      const body = JSON.stringify({ pins: Object.fromEntries(page.pins), token });
      const answer = await fetch("plan", { method: "POST", headers: { "Content-Type": "application/json" }, body }).catch(() => null);
      if (answer === null) {
        say("bad", "The server does not answer: has it ended?");
      } else if (!answer.ok) {
        say("bad", plain((await answer.text()).trim()));
      } else {
        const made = await answer.json();
        const pins = made.plan.pins.map(({ key, wanted }) => `${plain(key)} in ${plain(wanted)}`).join(", ");
        result.replaceChildren(h("h2", {}, "With ", h("span", { class: "code" }, pins || "no pins")), ...planCompare.compared(made, "pinned"));
        say("quiet", "Both plans are below.");
      }
      [isAsking, bar.hidden] = [false, true];
      drawPins();
    };

    function say(kind, text) {
      said.className = kind;
      said.textContent = text;
    }

    root.append(
      h("h2", {}, "What if these kernels came in other layouts?"),
      h("form", { class: "pin", onsubmit: add },
        h("label", {}, "Kernel ", kernel), h("label", {}, "in layout ", layout), h("button", { type: "submit" }, "Pin"), kernels, layouts),
      chosen, ask, " ", bar, said, result);
    page.onPins(drawPins);
    drawPins();
  });
})();
