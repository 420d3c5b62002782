"use strict";
// Facts as rows of a word and what it says, for tips and the panel: of values, times and reorders.
const planFacts = (() => {
  const { plan } = page.record;
  const { h, name, plain, time, bytes, percent, swatch } = page;
  const family = (desc) => plan.descs[desc].class;

  const without = (reorder) => {
    if (reorder.without_ns === null) return plan.is_exact ? "nothing on offer does without it" : "not known";
    const more = reorder.without_ns + plan.declined_ns;
    const sign = more < 0 ? "−" : "+";
    return `${plan.is_exact ? "" : "at most "}${sign}${time(Math.abs(more))} (${sign}${percent(Math.abs(more) / plan.cost_ns, 2)})`;
  };

  const took = (times) => (times.measured === null ? `${time(times.predicted)} predicted` : `${time(times.measured)} measured, ${time(times.predicted)} predicted`);

  const facts = (rows) => h("dl", { class: "told" }, rows.filter(([, value]) => value !== null).map(([word, ...value]) => [h("dt", {}, word), h("dd", {}, value)]));
  const names = (several, most = 4) => [several.slice(0, most).map((each, index) => [index ? ", " : "", name(each)]), several.length > most ? ` and ${several.length - most} more` : ""];

  function describe(desc) {
    const { layout, dtype, dims, nbytes } = plan.descs[desc];
    return [swatch(family(desc)), `${plain(layout)} (${family(desc)})`, dims ? ` ${dtype} ${dims.join("×")}, ${bytes(nbytes)}` : ""];
  }

  function reorderFacts(node) {
    return facts([
      ["Value", name(node.value)], ["From", describe(node.source)], ["To", describe(node.desc)],
      ["Moves", bytes(node.nbytes)], ["Time", took(node.times)], ["Why", name(node.reason)], ["Read by", names(node.readers)],
      ["Cheapest network without it", without(node)],
    ]);
  }

  return { facts, names, took, describe, without, reorderFacts };
})();
