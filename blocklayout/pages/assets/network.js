"use strict";
// The network: kernels, what they hand each other in which layout, and the reorders between them.
page.view("network", "Network", (root) => {
  root.append(page.panel);
});
