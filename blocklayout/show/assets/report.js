"use strict";
// Puts the page of a network together: its name, what it takes, and its run as each policy lays it out.
(() => {
  const { plan, profile, machine, title } = page.record;
  const { h, name, plain, time, bytes } = page;
  const measured = profile === null ? "" : `, measured ${time(profile.ns)}`;
  const reorders = planCompare.reorders(plan);
  page.start(
    h("h1", {}, name(title ?? plan.model)),
    h("div", {}, `${plan.dtype}, ${plan.n_threads} threads, ${plain(machine.cpu)}, ${plan.isa}, oneDNN ${plan.library}; layout ${plan.policy}`,
      plan.chosen === plan.policy ? "" : ` (${plan.chosen})`, `, ${plan.verdict}`),
    h("div", { class: "quiet" }, `predicted ${time(plan.cost_ns)}${measured}; ${plan.steps.length} steps, ${reorders} reorder${reorders === 1 ? "" : "s"}`,
      reorders === 0 ? "; " : ` moving ${bytes(plan.reorder_nbytes)}; `, `costs are from ${plan.priced_by}`),
    page.chooser, planRuns.figure(),
  );
})();
