"use strict";
// The run as each policy lays it out: a strip of steps in order, as wide as they take time, all to one scale; where no
// other plan is in the record, a bar of what each other policy is predicted to take.
const planRuns = (() => {
  const { record, h, s, name, plain, time, percent, colour } = page;
  const NAMED = 1 / 1500; // of the longest run: steps that take less are drawn, and not told of
  const APART = 1 / 200;
  const WIDE = 10_000; // units of a strip: nanoseconds are more than browsers take as lengths
  const isMove = (each) => ["reorder", "input", "output"].includes(each.kind);
  const numbers = new Map(record.plan.kernels.map((each, index) => [each.name, index]));

  // The steps of a run, each with the class of layouts that it writes; measured ones, or as they were predicted.
  function stepsOf({ plan, profile, predicted }, isMeasured) {
    const written = new Map(plan.kernels.map((each) => [each.name, plan.descs[each.chosen.dst].class]));
    return (profile ?? predicted).steps.filter((each) => isMeasured || each.kind !== "outside").map((each) => {
      const dst = plan.steps[each.number]?.operands.find(({ argument }) => argument.startsWith("dst"));
      const own = dst === undefined ? "any" : plan.descs[dst.desc].class; // a step may see a tensor as a vector
      const family = isMove(each) ? "reorder" : own === "any" ? written.get(each.name) ?? own : own;
      return { ...each, family, ns: isMeasured || profile === null ? each.ns : each.estimated_ns };
    });
  }

  const runs = [record, ...record.others];
  const priced = Object.entries(record.plan.policy_costs) // "solve" is one of those that auto chooses among
    .filter(([policy]) => record.others.length === 0 && policy !== "solve" && policy !== record.plan.policy);
  const isMeasured = priced.length === 0 && runs.every(({ profile }) => profile !== null);
  const [own, ...others] = [
    ...runs.map((run) => ({ policy: run.plan.policy, steps: stepsOf(run, isMeasured), run })),
    ...priced.map(([policy, ns]) => ({ policy, steps: [{ ns, kind: "work", family: "any", name: "", primitive: "its steps are not in this page" }], run: null })),
  ].map((each) => ({ ...each, ns: d3.sum(each.steps, ({ ns }) => ns) }));
  // The policies of other plans, by plan; numbered where there are several of one.
  const labels = new Map(record.others.map((run, at) => {
    const before = record.others.slice(0, at).filter(({ plan }) => plan.policy === run.plan.policy).length;
    return [run, plain(run.plan.policy) + (before > 0 ? ` (${before + 1})` : "")];
  }));
  const rows = [own, ...d3.sort(others, ({ ns }) => ns)];
  const longest = d3.max(rows, ({ ns }) => ns) || 1;

  function facts({ policy }, step) {
    return [h("strong", {}, name(step.name || policy)), step.name ? plain(policy) : null, name([step.primitive, step.impl].filter(Boolean).join(", ")),
      step.layouts ? name(step.layouts) : null, `${time(step.ns)}, ${percent(step.ns / own.ns)} of this plan's run`].filter((each) => each !== null);
  }

  function strip({ policy, steps, ns }, row, marks) {
    let at = 0;
    const shapes = steps.map((step) => {
      const [x, isNamed] = [at, isMove(step) || step.ns >= NAMED * longest];
      at += step.ns;
      const shape = s("rect", { class: isMove(step) ? "move" : step.ns >= APART * longest ? "apart" : null, x: (WIDE * x) / longest, y: 0, width: (WIDE * step.ns) / longest, height: isMove(step) ? 20 : 16,
        style: step.kind === "outside" ? "fill:var(--line)" : `fill:${colour(step.family)}` });
      if (isNamed) marks.push({ shape, row, step, begin: x, kernel: numbers.get(step.name) ?? null });
      return shape;
    });
    return s("svg", { class: "policy-strip", viewBox: `0 0 ${WIDE} 20`, preserveAspectRatio: "none", role: "group",
      "aria-label": `${plain(policy)}: ${time(ns)}, ${steps.length} steps` }, shapes);
  }

  // Left and right stay in a strip; up and down go to what runs at that time in the strip beside.
  function neighbour(marks, index, key) {
    const { row, begin } = marks[index];
    const step = { ArrowUp: -1, ArrowDown: 1 }[key];
    if (step !== undefined) {
      return d3.least(d3.range(marks.length).filter((each) => marks[each].row === row + step), (each) => Math.abs(marks[each].begin - begin)) ?? index;
    }
    const to = index + ({ ArrowRight: 1, ArrowLeft: -1 }[key] ?? NaN);
    return Number.isNaN(to) ? null : marks[to]?.row === row ? to : index;
  }

  // The policy's name, and the way to its plan beside this one.
  function labelled({ policy, run }, isOwn) {
    if (isOwn || run === null) return h(isOwn ? "strong" : "span", {}, name(policy));
    const compare = () => page.open("compare", { policy: labels.get(run) });
    return h("button", { type: "button", class: "link", "aria-label": `Compare this plan with that of ${labels.get(run)}`, onclick: compare }, name(labels.get(run)));
  }

  function figure() {
    const marks = [];
    const reorders = ({ run, steps }) => (run === null ? "" : `${steps.filter(isMove).length || "no"} reorder${steps.filter(isMove).length === 1 ? "" : "s"}`);
    const drawn = rows.map((each, row) => {
      const isOwn = each === own;
      return h("div", { class: "run", "data-policy": each.policy },
        h("span", { class: "policy", title: record.policies[each.policy] }, labelled(each, isOwn)),
        strip(each, row, marks), h("span", { class: "number" }, h("strong", {}, time(each.ns))),
        h("span", { class: "number" }, isOwn ? "this plan" : page.changed(each.ns / own.ns)),
        h("span", { class: "number quiet moves" }, reorders(each)));
    });
    const written = new Set(rows.flatMap(({ run, steps }) => (run === null ? [] : steps.filter(({ kind }) => kind !== "outside").map(({ family }) => family))));
    const how = isMeasured ? `measured, medians of ${record.profile.n_runs} runs${others.length ? " in turn" : ""}` : "predicted";
    const box = h("div", { class: "runs" }, drawn);
    page.walk(box, marks.map(({ shape }) => shape), (index) => facts(rows[marks[index].row], marks[index].step),
      (index) => marks[index].kernel !== null && page.select(marks[index].kernel), (index, key) => neighbour(marks, index, key));
    page.onSelect((kernel) => marks.forEach((mark) => mark.shape.classList.toggle("chosen", kernel !== null && mark.kernel === kernel)));
    return h("figure", { class: "picture", id: "policies" },
      h("figcaption", {}, h("h2", {}, "Time by policy"), h("span", { class: "quiet" }, `a run's steps from left to right, as wide as their time, ${how}`), page.legend([...written].sort())), box);
  }

  return { stepsOf, isMove, labels, figure };
})();
