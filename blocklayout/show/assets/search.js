"use strict";
// The search for kernels, reorders, nodes and values by a part of their names, beside the tabs: views mark all that is
// found, and show the one that the reader is at; Enter goes to the next one, and chooses it.
const planSearch = (() => {
  const { plan } = page.record;
  const { h } = page;
  const listeners = [];
  let matches = [];
  let at = -1;

  function textOf(node) {
    if (node.haystack !== undefined) return node.haystack;
    const kernel = node.kind === "kernel" || node.kind === "view" ? plan.kernels[node.kernel] : null;
    const words = kernel === null ? [node.name ?? node.value] : [kernel.name, ...kernel.nodes, ...kernel.aliases, ...kernel.reads, kernel.writes, ...kernel.holds];
    node.haystack = words.join("\n").toLowerCase();
    return node.haystack;
  }

  function find() {
    const wanted = box.value.trim().toLowerCase();
    const found = wanted === "" ? [] : d3.sort([...planGraph.nodes.values()].filter((node) => textOf(node).includes(wanted)), (node) => node.order);
    const isNamed = (node) => (node.name ?? "").toLowerCase().includes(wanted);
    matches = [...found.filter(isNamed), ...found.filter((node) => !isNamed(node))];
    at = -1;
    count.textContent = wanted === "" ? "" : matches.length === 0 ? "nothing found" : `${matches.length} found`;
    page.keep({ find: wanted || null });
    listeners.forEach((listener) => listener());
  }

  function go(step) {
    if (matches.length === 0) return;
    at = at < 0 && step < 0 ? matches.length - 1 : (at + step + matches.length) % matches.length;
    count.textContent = `${at + 1} of ${matches.length}`;
    const { id, kind, kernel } = matches[at];
    if (kernel !== undefined) page.select(kernel, kind === "reorder" ? id : null);
    listeners.forEach((listener) => listener());
  }

  const box = h("input", { type: "search", placeholder: "Find a kernel, node or value", "aria-label": "Find a kernel, node or value by a part of its name", oninput: find });
  const count = h("output", { class: "quiet" });
  box.addEventListener("keydown", (event) => event.key === "Enter" && go(event.shiftKey ? -1 : 1));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    box.focus();
  });
  page.tools.append(box, count);
  page.onAddress(() => {
    const wanted = page.kept("find") ?? "";
    if (wanted === box.value.trim().toLowerCase()) return;
    box.value = wanted;
    find();
  });

  return {
    get matches() { return matches; },
    get current() { return matches[at]; },
    get shown() { return matches[Math.max(at, 0)]; },
    onChange: (listener) => listeners.push(listener),
  };
})();
