"use strict";
// Every step of a run as a table: the page without its pictures.
page.view("steps", "Steps", (root) => {
  const { plan, profile } = page.record;
  const { name, time, bytes, percent, table } = page;
  const layout = (desc) => plan.descs[desc].layout;
  const timed = new Map(profile === null ? [] : profile.steps.filter((each) => each.number !== null).map((each) => [each.number, each]));

  function layouts(step) {
    const of = (test) => step.operands.filter(({ argument }) => test(argument)).map(({ desc }) => layout(desc)).join(", ");
    return `${of((each) => !each.startsWith("dst"))} → ${of((each) => each.startsWith("dst"))}`;
  }

  const rows = plan.steps.map((step, number) => {
    const measured = timed.get(number);
    return [
      [number, String(number)], name(step.kernel), name(step.primitive), name(step.impl), layouts(step), name(step.reason),
      [step.nbytes, bytes(step.nbytes)], [step.cost_ns, time(step.cost_ns)],
      [measured?.ns ?? -1, time(measured?.ns)], [measured?.ceiling_share ?? -1, percent(measured?.ceiling_share, 0)],
    ];
  });
  const entries = plan.entries.filter((each) => each.is_reorder).map((entry) => [
    [-1, "in"], name(entry.input), "reorder", "", `${layout(entry.source)} → ${layout(entry.desc)}`, name(entry.reason),
    [entry.nbytes, bytes(entry.nbytes)], [entry.cost_ns, time(entry.cost_ns)], [-1, "–"], [-1, "–"],
  ]);
  root.append(table(
    ["#", "kernel", "primitive", "implementation", "layouts", "why it is there", "bytes", "predicted", "measured", "of ceiling"],
    [...entries, ...rows],
    profile === null ? "Times are predicted; nothing was run." : `Measured: medians of ${profile.n_runs} runs.`,
  ));
});
