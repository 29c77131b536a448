(function () {
  "use strict";
  var rows = Array.prototype.slice.call(document.querySelectorAll("table.claims tbody tr"));
  var controls = {};
  ["search", "paper", "outcome", "kind"].forEach(function (name) {
    var control = document.getElementById("filter-" + name);
    if (control) { controls[name] = control; }
  });
  var names = Object.keys(controls);
  var all = document.getElementById("all-rows");

  function plain(text) {
    return text.normalize("NFD").replace(/[\u0300-\u036f]/g, "").toLowerCase().replace(/\s+/g, " ").trim();
  }

  // Rows that have what is asked for as one phrase; where there is none, those that have every word.
  function update() {
    var phrase = plain(controls.search.value);
    var texts = rows.map(function (row) { return plain(row.textContent + " " + row.dataset.words); });
    var found = texts.some(function (text) { return text.indexOf(phrase) >= 0; });
    var words = found ? [phrase] : phrase.split(" ");
    var shown = 0;
    rows.forEach(function (row, number) {
      var fits = names.every(function (name) {
        return name === "search" || controls[name].value === "" || row.dataset[name] === controls[name].value;
      }) && words.every(function (word) { return texts[number].indexOf(word) >= 0; });
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    });
    document.getElementById("filter-count").textContent = shown + " of " + rows.length + " rows";
  }

  // What is asked for stands in the address, behind #, so that it can be sent.
  function search() {
    var pairs = names.filter(function (name) { return controls[name].value; }).map(function (name) {
      return name + "=" + encodeURIComponent(controls[name].value);
    });
    update();
    all.open = pairs.length > 0;
    history.replaceState(null, "", pairs.length ? "#" + pairs.join("&") : "#claims");
  }

  function reset() {
    names.forEach(function (name) { controls[name].value = ""; });
    search();
  }

  function open(target) {
    for (var node = target; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") { node.open = true; }
    }
  }

  function follow() {
    var hash = location.hash.slice(1);
    if (names.length && hash.indexOf("=") > 0) {
      hash.split("&").forEach(function (pair) {
        var name = pair.split("=")[0];
        if (controls[name]) { controls[name].value = decodeURIComponent(pair.slice(name.length + 1)); }
      });
      search();
      hash = "claims";
    }
    var target = document.getElementById(decodeURIComponent(hash));
    if (!target) { return; }
    if (rows.indexOf(target) >= 0 && target.hidden) { reset(); }
    open(target);
    target.scrollIntoView();
  }

  // A cell of the map is a number: its words stand below the map while it is pointed at.
  var named = document.querySelector(".named");
  document.querySelectorAll(".cell").forEach(function (cell) {
    function name() { named.textContent = cell.title; }
    cell.addEventListener("pointerenter", name);
    cell.addEventListener("focus", name);
    cell.addEventListener("click", function (event) {
      if (event.pointerType === "touch" && named.dataset.cell !== cell.href) {
        event.preventDefault();
        name();
      }
      named.dataset.cell = cell.href;
    });
  });

  if (names.length) {
    names.forEach(function (name) {
      controls[name].addEventListener(name === "search" ? "input" : "change", search);
    });
    document.getElementById("filter-reset").addEventListener("click", reset);
    update();
  }
  window.addEventListener("hashchange", follow);
  follow();
})();
