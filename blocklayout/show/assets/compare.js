"use strict";
// Two plans of the network side by side, in numbers, then what differs: this one and that of another policy, which the
// reader chooses, or one that is made anew.
const planCompare = (() => {
  const { record } = page;
  const { h, name, plain, time, bytes, percent, signed, table } = page;
  const { plan } = record;
  const numbers = new Map(plan.kernels.map((kernel, index) => [kernel.name, index]));

  // Nodes that tell of another plan beside this one; "other" is a word for it.
  function compared({ plan: made, profile, changes, in_turn: inTurn = null }, other) {
    const bothRan = record.profile !== null && profile !== null;
    return [
      table(["", "this plan", other, "difference"], [
        amount("predicted time", time, plan.cost_ns, made.cost_ns, true),
        ...(inTurn !== null ? [measured(inTurn)] : bothRan ? [amount("measured time", time, record.profile.ns, profile.ns, true)] : []),
        amount("steps", String, plan.steps.length, made.steps.length),
        amount("reorders", String, reorders(plan), reorders(made)),
        amount("bytes that reorders move", bytes, plan.reorder_nbytes, made.reorder_nbytes),
        amount("arena", bytes, plan.arena_nbytes, made.arena_nbytes),
        amount("padding", bytes, plan.padding_nbytes, made.padding_nbytes),
      ]),
      h("p", { class: "quiet" }, inTurn !== null
        ? `Measured in turn: medians of ${inTurn.n_rounds} rounds; their difference is that within a round, from the least to the most.`
        : bothRan ? `Measured: medians of ${profile.n_runs} runs.` : "Times are predicted; nothing was run.",
      inTurn !== null && inTurn.ratio.low < 1 && inTurn.ratio.high > 1 ? " The rounds disagree which plan is the faster." : ""),
      h("h2", {}, `Kernels computed otherwise: ${changes.kernels.length}`),
      changes.kernels.length === 0 ? null : table(["kernel", "this plan", "predicted", other, "predicted"],
        changes.kernels.map(({ name: kernel, before, after }) => [link(kernel), ...way(before), ...way(after)])),
      ...moved(`Reorders of this plan alone`, changes.reorders_gone),
      ...moved(`Reorders of the other alone`, changes.reorders_new),
    ].filter((each) => each !== null);
  }

  const reorders = (of) => of.steps.filter((each) => each.kind === "reorder").length + of.entries.filter((each) => each.is_reorder).length;

  function link(kernel) {
    if (!numbers.has(kernel)) return name(kernel);
    return h("button", { type: "button", class: "link", onclick: () => page.select(numbers.get(kernel)) }, name(kernel));
  }

  function measured({ before_ns: before, after_ns: after, ratio }) {
    const [median, low, high] = [ratio.median, ratio.low, ratio.high].map(page.changed);
    return ["measured time", [before, time(before)], [after, time(after)], difference(ratio.median - 1, median, `${low} to ${high}`)];
  }

  function amount(title, shown, before, after, isRelative = false) {
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

  function moved(title, several) {
    return [
      h("h2", {}, `${title}: ${several.length}`),
      several.length === 0 ? null : table(["value", "layouts", "read by", "bytes", "predicted"], several.map((each) => [
        name(each.value), `${each.src} → ${each.dst}`, name(each.readers.join(", ")), [each.nbytes, bytes(each.nbytes)], [each.cost_ns, time(each.cost_ns)],
      ])),
    ];
  }

  function drawView(root) {
    const result = h("div");
    const policies = [...planRuns.labels.values()];
    const chooser = h("select", { id: "policy", onchange: () => page.open("compare", { policy: chooser.value }) }, policies.map((policy) => h("option", { value: policy }, policy)));

    function draw() {
      const at = Math.max(0, policies.indexOf(page.kept("policy")));
      chooser.value = policies[at];
      result.replaceChildren(...compared(record.others[at], policies[at]));
    }
    root.append(h("p", {}, h("label", {}, `This plan, of policy ${plain(plan.policy)}, beside that of `, chooser)), result);
    page.onAddress(draw);
    draw();
  }

  return { compared, drawView, reorders };
})();
if (page.record.others.length > 0) page.view("compare", "Compare", planCompare.drawView);
