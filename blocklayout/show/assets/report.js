"use strict";
// Puts the page of a network together: its name, what it takes, and how far other policies are from it.
(() => {
  const { plan, profile, machine } = page.record;
  const { h, name, plain, time, bytes, percent, signed } = page;
  const measured = profile === null ? "" : `, measured ${time(profile.ns)}`;
  const reorders = plan.steps.filter((each) => each.kind === "reorder").length + plan.entries.filter((each) => each.is_reorder).length;
  // "solve" is one of those that auto chooses among.
  const policies = Object.entries(plan.policy_costs)
    .filter(([policy]) => policy !== plan.policy && policy !== "solve" && plan.cost_ns > 0)
    .map(([policy, cost]) => `${policy} ${signed(percent(cost / plan.cost_ns - 1, 0))}`);
  page.start(
    h("h1", {}, name(plan.model)),
    h("div", {}, `${plan.dtype}, ${plan.n_threads} threads, ${plain(machine.cpu)}, ${plan.isa}, oneDNN ${plan.library}; layout ${plan.policy}`,
      plan.chosen === plan.policy ? "" : ` (${plan.chosen})`, `, ${plan.verdict}`),
    h("div", { class: "quiet" }, `predicted ${time(plan.cost_ns)}${measured}; ${plan.steps.length} steps, ${reorders} reorder${reorders === 1 ? "" : "s"}`,
      reorders === 0 ? "; " : ` moving ${bytes(plan.reorder_nbytes)}; `,
      policies.length === 0 ? "" : `other policies, predicted: ${policies.join(", ")}; `, `costs are from ${plan.priced_by}`),
    page.chooser,
  );
})();
