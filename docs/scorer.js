// How the search ranks what it finds: Sphinx's own weights, and guides before reference and options.
var Scorer = {
  score: ([page, title, anchor, description, score]) => score + (page.startsWith("guide/") ? 4 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
