(function () {
  "use strict";
  var rows = Array.prototype.slice.call(document.querySelectorAll("table.claims tbody tr"));
  var controls = {
    paper: document.getElementById("filter-paper"),
    verdict: document.getElementById("filter-verdict"),
    kind: document.getElementById("filter-kind")
  };
  var search = document.getElementById("filter-search");
  var count = document.getElementById("filter-count");

  function update() {
    var words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    var shown = 0;
    rows.forEach(function (row) {
      var text = row.textContent.toLowerCase();
      var fits = Object.keys(controls).every(function (name) {
        return controls[name].value === "" || row.dataset[name] === controls[name].value;
      }) && words.every(function (word) { return text.indexOf(word) >= 0; });
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    });
    count.textContent = shown + " of " + rows.length + " rows";
  }

  function open(target) {
    for (var node = target; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") { node.open = true; }
    }
  }

  function follow() {
    var target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) { return; }
    if (rows.indexOf(target) >= 0 && target.hidden) { reset(); }
    open(target);
    target.scrollIntoView();
  }

  function reset() {
    Object.keys(controls).forEach(function (name) { controls[name].value = ""; });
    search.value = "";
    update();
  }

  Object.keys(controls).forEach(function (name) {
    controls[name].addEventListener("change", update);
  });
  search.addEventListener("input", update);
  document.getElementById("filter-reset").addEventListener("click", reset);
  window.addEventListener("hashchange", follow);
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details.print").forEach(function (node) { node.open = true; });
  });
  update();
  follow();
})();
