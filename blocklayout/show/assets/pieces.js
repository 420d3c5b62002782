"use strict";
// A model that is cut: the piece that the address names takes the place of the first, before any view looks at it;
// page.chooser tells of all pieces, and goes to another one.
(() => {
  const { record, h, name, time } = page;
  page.chooser = null;
  if (record.pieces.length === 0) return;
  const planned = record.pieces.flatMap(({ report }, index) => (report === null ? [] : [index]));

  function chosen() {
    const number = Number(page.kept("piece")) - 1;
    return planned.includes(number) ? number : planned[0];
  }

  const shown = chosen();
  Object.assign(record, record.pieces[shown].report);
  addEventListener("hashchange", () => chosen() !== shown && location.reload());

  function go(event) {
    page.keep({ piece: Number(event.target.value) + 1, kernel: null, reorder: null, at: null, open: null }, true);
    location.reload();
  }

  function told({ name: piece, by, reason, ns, notes, report }, index) {
    const measured = report === null ? ns : report.profile?.ns ?? null;
    const computed = report !== null ? `${report.plan.steps.length} steps, predicted ${time(report.plan.cost_ns)}` : by ? `by ${by}` : "no plan";
    return h("li", { "aria-current": index === shown ? "true" : null }, name(piece), `: ${computed}`,
      measured === null ? "" : `, measured ${time(measured)}`, reason === "" ? null : ["; cut: ", name(reason)],
      notes.map((note) => ["; ", name(note)]));
  }

  const options = planned.map((index) => {
    const { name: piece, report } = record.pieces[index];
    return h("option", { value: index, selected: index === shown }, `${index + 1}. ${page.plain(piece)}, ${report.plan.steps.length} steps`);
  });
  const select = h("select", { id: "piece", onchange: go }, options);
  select.value = String(shown);
  page.chooser = h("div", {},
    h("label", {}, "This model is cut where only data settle extents. Shown is piece ", select),
    h("details", {}, h("summary", {}, `All ${record.pieces.length} pieces, and why it is cut`), h("ol", {}, record.pieces.map(told))));
})();
