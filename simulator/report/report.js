"use strict";
(async () => {
  const CONFIG = {
    responsive: true,
    displaylogo: false,
    displayModeBar: false,
  };

  async function unpack(id) {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  function say(problem) {
    const place = document.getElementById("problem");
    place.textContent = problem;
    place.hidden = false;
  }

  if (typeof DecompressionStream === "undefined") {
    say("The plots need a browser of 2023 or later.");
    return;
  }
  const [library, payload] = await Promise.all(["library", "payload"].map(unpack));
  const element = document.createElement("script");
  element.textContent = library;
  document.head.append(element);

  const { figures, choices } = JSON.parse(payload);
  const plots = {};
  for (const [id, figure] of Object.entries(figures)) {
    plots[id] = document.getElementById(id);
    await Plotly.newPlot(plots[id], figure.data, figure.layout, CONFIG);
  }

  // Zooming in time in one plot zooms in all of them.
  const overTime = Object.entries(plots).filter(([id]) => !id.startsWith("waterfall")).map(([, plot]) => plot);
  let following = false;
  for (const plot of overTime) {
    plot.on("plotly_relayout", async (change) => {
      const touched = Object.keys(change).some((key) => key.startsWith("xaxis"));
      if (following || !touched) return;
      following = true;
      const range = plot.layout.xaxis.range.slice();
      for (const other of overTime) {
        if (other !== plot) await Plotly.relayout(other, { "xaxis.range": range });
      }
      following = false;
    });
  }

  for (const button of document.querySelectorAll("button[data-choice]")) {
    button.addEventListener("click", () => {
      const { kind, choice } = button.dataset;
      for (const other of button.parentElement.children) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      for (const [id, options] of Object.entries(choices)) {
        if (id.startsWith(kind + "-")) {
          const changed = Object.entries(options[choice]).map(([key, value]) => [key, [value]]);
          Plotly.restyle(plots[id], Object.fromEntries(changed));
        }
      }
    });
  }

  // Plots are drawn for the window; for paper they are drawn anew as wide as report.css makes the printed page.
  window.addEventListener("beforeprint", () => {
    document.body.classList.add("paper");
    for (const plot of Object.values(plots)) Plotly.relayout(plot, { width: plot.clientWidth });
  });
  window.addEventListener("afterprint", () => {
    document.body.classList.remove("paper");
    for (const plot of Object.values(plots)) Plotly.relayout(plot, { width: null, autosize: true });
  });
  document.documentElement.dataset.ready = "true";
})();
