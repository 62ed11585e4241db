// arithmatex leaves formulas between these
renderMathInElement(document.body, {
  delimiters: [
    { left: "\\[", right: "\\]", display: true },
    { left: "\\(", right: "\\)", display: false },
  ],
});
