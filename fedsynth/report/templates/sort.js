for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], number = (cell) => parseFloat(
    cell.dataset.order ?? cell.textContent.replace(/,/g, "").replace("∞", "Infinity"));
  for (const button of table.querySelectorAll("thead button")) {
    button.onclick = () => {
      const head = button.parentNode, up = head.ariaSort !== "ascending", way = up ? 1 : -1;
      for (const other of table.querySelectorAll("[aria-sort]")) other.ariaSort = null;
      head.ariaSort = up ? "ascending" : "descending";
      [...body.rows].sort((a, b) => {
        const [c, d] = [a, b].map((row) => row.cells[button.dataset.column]);
        const [x, y] = [c, d].map(number);
        return isNaN(x) - isNaN(y) || way * (x - y || c.textContent.localeCompare(d.textContent));
      }).forEach((row) => body.append(row));
    };
  }
}
