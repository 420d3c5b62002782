"use strict";
// The chosen kernel: what it is, how it is computed, and what else it could be.
(() => {
  page.onSelect((kernel) => {
    page.panel.replaceChildren(kernel === null ? "" : page.name(page.record.plan.kernels[kernel].name));
  });
})();
