"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const details = JSON.parse(document.getElementById("data").textContent);
  const panel = document.getElementById("details");
  let chosen = null;

  // The text of a model goes into text nodes only.
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  const list = (heading, items) => {
    if (!items.length) return [];
    const ul = element("ul");
    for (const [strong, ...rest] of items) {
      const li = element("li");
      li.append(element("b", strong), ...rest.filter(Boolean).map((text) => element("small", text)));
      ul.append(li);
    }
    return [element("h4", heading), ul];
  };

  const describe = (number) => {
    const kernel = details[number];
    const heading = element("h3");
    heading.append(element("span", number, `swatch ${heatOf(number)}`), kernel.title);
    const facts = element("dl");
    for (const [name, value] of kernel.facts) facts.append(element("dt", name), element("dd", value));
    const close = element("button", "×", "close");
    close.type = "button";
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", () => panel.classList.remove("open"));
    const operators = kernel.operators.map(([index, code, outputs]) => [`${index} ${code}`, outputs]);
    const operands = kernel.operands.map(([name, what, size, place, tensor]) => [name, `${what} · ${size}`, place, tensor]);
    panel.replaceChildren(
      close, heading, facts,
      ...list(operators.length > 1 ? `${operators.length} operators fused into it` : "Operator", operators),
      ...(kernel.steps.length ? [element("h4", "Epilogue"), element("p", kernel.steps.join(" → "), "steps")] : []),
      ...list("Memory", operands),
    );
    panel.scrollTop = 0;
  };

  const heatOf = (number) => {
    const mark = document.querySelector(`tr[data-k="${number}"] .swatch`);
    return mark ? [...mark.classList].find((name) => name.startsWith("heat")) : "heat0";
  };

  const show = (number) => {
    for (const on of all(".on")) on.classList.remove("on");
    for (const each of all(`[data-k="${number}"], .line[data-a="${number}"], .line[data-b="${number}"]`)) each.classList.add("on");
    for (const plot of all("svg[data-step]")) {
      const now = plot.querySelector(".now");
      now.setAttribute("x", Number(plot.dataset.left) + number * Number(plot.dataset.step));
      now.style.visibility = "visible";
      for (const tensor of all(".tensor", plot)) {
        tensor.classList.toggle("on", tensor.dataset.first <= number && number <= Number(tensor.dataset.last));
      }
    }
    describe(number);
  };

  const choose = (number, open) => {
    chosen = number;
    for (const mark of all(".mark")) mark.tabIndex = Number(mark.dataset.k) === number ? 0 : -1;
    show(number);
    if (open) panel.classList.add("open");
  };

  const kernelAt = (target) => {
    const tensor = target.closest(".tensor");
    if (tensor) return Number(tensor.dataset.first);
    const found = target.closest("[data-k]");
    return found ? Number(found.dataset.k) : null;
  };

  document.addEventListener("click", (event) => {
    const number = kernelAt(event.target);
    if (number !== null) choose(number, true);
  });

  // A mouse that passes shows a kernel until it leaves.
  if (matchMedia("(hover: hover) and (min-width: 1001px)").matches) {
    document.addEventListener("pointerover", (event) => {
      const number = event.target.closest("svg, .strip, .lines") ? kernelAt(event.target) : null;
      if (number !== null) show(number);
    });
    document.addEventListener("pointerout", (event) => {
      if (chosen !== null && event.target.closest("svg, .strip, .lines") && kernelAt(event.target) !== null) show(chosen);
    });
  }

  const STEPS = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") panel.classList.remove("open");
    const mark = event.target.closest ? event.target.closest(".mark") : null;
    if (!mark) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose(Number(mark.dataset.k), true);
    } else if (event.key in STEPS) {
      event.preventDefault();
      const next = Number(mark.dataset.k) + STEPS[event.key];
      if (next in details) {
        choose(next, false);
        all(`.mark[data-k="${next}"]`).find((each) => each.getClientRects().length)?.focus();
      }
    }
  });

  // The list needs less width, the overview less height.
  const view = (name) => {
    root.dataset.view = name;
    for (const button of all("[data-view]", document.body)) button.setAttribute("aria-pressed", String(button.dataset.view === name));
  };
  for (const button of all(".switch button")) button.addEventListener("click", () => view(button.dataset.view));
  view(innerWidth > 700 && Object.keys(details).length > 80 ? "overview" : "list");

  const THEMES = { auto: "◐ auto", light: "○ light", dark: "● dark" };
  const switcher = document.getElementById("theme");
  const theme = (name) => {
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    switcher.textContent = THEMES[name];
    switcher.setAttribute("aria-label", `Colours: ${name === "auto" ? "as the system has them" : name}`);
  };
  switcher.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    theme(names[(names.indexOf(root.dataset.theme || "auto") + 1) % names.length]);
  });

  const body = document.querySelector(".kernels tbody");
  all(".kernels thead th").forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const numeric = header.classList.contains("num");
      const now = header.getAttribute("aria-sort");
      const order = now === "descending" || (!now && !numeric) ? "ascending" : "descending";
      for (const other of all(".kernels thead th")) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", order);
      const key = (row) => row.cells[column].dataset.v;
      const compare = (a, b) => (column && !numeric ? key(a).localeCompare(key(b)) : key(a) - key(b));
      const rows = [...body.rows].sort(compare);
      body.append(...(order === "ascending" ? rows : rows.reverse()));
    });
  });
  document.getElementById("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });

  const slowest = document.querySelector(".slowest [data-k]");
  if (slowest) choose(Number(slowest.dataset.k), false);
})();
