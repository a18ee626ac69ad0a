for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], number = (cell) => parseFloat(
    cell.textContent.replace(/,/g, "").replace("∞", "Infinity"));
  table.querySelectorAll("thead button").forEach((button, column) => {
    button.onclick = () => {
      const head = button.parentNode, up = head.ariaSort !== "ascending";
      for (const other of head.parentNode.cells) other.ariaSort = null;
      head.ariaSort = up ? "ascending" : "descending";
      [...body.rows].sort((a, b) => {
        const [x, y] = (up ? [a, b] : [b, a]).map((row) => row.cells[column]);
        return number(x) === number(y) ? 0 : number(x) - number(y) ||
          x.textContent.localeCompare(y.textContent);
      }).forEach((row) => body.append(row));
    };
  });
}
