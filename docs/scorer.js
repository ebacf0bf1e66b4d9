// How the search ranks what it finds: a class or function that is asked for exactly, then guides and
// first steps, then the rest of the pages, methods, and names that are like what was asked for.
var Scorer = {
  score: ([page, title, anchor, description, score, file, kind]) => {
    if (kind === "object") return score - (/method|property|attribute/.test(description) ? 70 : 0);
    if (page.startsWith("guide/")) return score + 30;
    return score + (page.startsWith("start/") || page === "coming-from" || page === "faq" ? 20 : 0);
  },
  objNameMatch: 80,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
