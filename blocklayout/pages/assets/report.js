"use strict";
// Puts the page of a network together: its name, what it takes, and how far other policies are from it.
(() => {
  const { plan, profile } = page.record;
  const { h, name, time, bytes, percent } = page;
  const measured = profile === null ? "" : `, measured ${time(profile.ns)}`;
  const reorders = plan.steps.filter((each) => each.kind === "reorder").length + plan.entries.filter((each) => each.is_reorder).length;
  const policies = Object.entries(plan.policy_costs).filter(([policy]) => policy !== plan.policy && plan.cost_ns > 0)
    .map(([policy, cost]) => `${policy} ${percent(cost / plan.cost_ns - 1, 0).replace(/^(?!-)/, "+")}`);
  page.start(
    h("h1", {}, name(plan.model)),
    h("div", {}, `${plan.dtype}, ${plan.n_threads} threads, ${plan.isa}, oneDNN ${plan.library}; layout ${plan.policy}`,
      plan.chosen === plan.policy ? "" : ` (${plan.chosen})`, `, ${plan.verdict}`),
    h("div", { class: "quiet" }, `predicted ${time(plan.cost_ns)}${measured}; ${plan.steps.length} steps, ${reorders} reorders that move ${bytes(plan.reorder_nbytes)}; `,
      policies.length === 0 ? "" : `other policies, predicted: ${policies.join(", ")}; `, `costs are from ${plan.priced_by}`),
    page.chooser,
  );
})();
