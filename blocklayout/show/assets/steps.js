"use strict";
// Every step of a run as a table: the page without its pictures.
page.view("steps", "Steps", (root) => {
  const { plan, profile } = page.record;
  const { h, name, plain, time, bytes, percent, table } = page;
  const layout = (desc) => plan.descs[desc].layout;
  const numbers = new Map(plan.kernels.map((kernel, index) => [kernel.name, index]));
  const ran = profile?.steps ?? [];
  const timed = new Map(ran.map((each) => [each.number, each]));

  function layouts(step) {
    const of = (test) => step.operands.filter(({ argument }) => test(argument)).map(({ desc }) => layout(desc)).join(", ");
    return `${of((each) => !each.startsWith("dst"))} → ${of((each) => each.startsWith("dst"))}`;
  }

  // By the ids of marks in the graph: a kernel's steps, reorders, inputs that are copied.
  const [ids, rows] = [[], []];
  function add(id, number, kernel, title, of, how, measured) {
    const choose = () => page.select(kernel, id.startsWith("k") ? null : id);
    ids.push(id);
    rows.push([
      number,
      h("div", { class: "entitled" }, kernel === undefined ? name(title) : h("button", { type: "button", class: "link", onclick: choose }, name(title)),
        h("div", { class: "quiet" }, how.filter((each) => each !== "").join(", "))),
      [of.cost_ns, time(of.cost_ns)],
      [measured?.ns ?? -1, h("div", {}, time(measured?.ns), h("div", { class: "quiet" }, measured === undefined ? "" : page.spread(measured)))],
      [measured?.ceiling_share ?? -1, percent(measured?.ceiling_share, 0)], [of.nbytes, bytes(of.nbytes)], name(of.reason),
    ]);
  }
  plan.entries.forEach((entry, number) => entry.is_reorder && add(
    `e${number}`, [-1, "in"], numbers.get(entry.readers[0]), entry.input, entry, ["reorder", `${layout(entry.source)} → ${layout(entry.desc)}`],
    ran.find((each) => each.kind === "input" && each.name === entry.input && each.nbytes === entry.nbytes)));
  plan.steps.forEach((step, number) => {
    const isReorder = step.kind === "reorder";
    const kernel = numbers.get(step.kernel) ?? (isReorder ? planGraph.nodes.get(`r${number}`).kernel ?? undefined : undefined);
    add(isReorder ? `r${number}` : `k${kernel}`, [number, String(number)], kernel, step.kernel, step, [plain(step.primitive), plain(step.impl), layouts(step)], timed.get(number));
  });

  const shown = table(["#", "step", "predicted", "measured", "of ceiling", "bytes", "why it is there"], rows,
    profile === null ? "Times are predicted; nothing was run." : `Measured: medians of ${profile.n_runs} runs, and the least and the most of them.`);
  root.append(shown);
  const marks = [...shown.querySelectorAll("tbody tr")];

  // What is chosen and found, and the row to look at, in the middle of the table's box.
  function mark(isFound) {
    const chosen = page.reorder ?? `k${page.selected}`;
    const found = new Set(planSearch.matches.map(({ id }) => id));
    ids.forEach((id, index) => {
      marks[index].classList.toggle("chosen", id === chosen);
      marks[index].classList.toggle("match", found.has(id));
      marks[index].setAttribute("aria-current", String(id === chosen));
    });
    const at = ids.indexOf(isFound ? planSearch.shown?.id : chosen);
    if (at >= 0) shown.scrollTop += marks[at].getBoundingClientRect().top - shown.getBoundingClientRect().top - shown.clientHeight / 2;
  }
  page.onSelect(() => mark(false));
  planSearch.onChange(() => mark(true));
  return () => mark(false);
});
