import { render } from "preact";
import { App } from "./app";
import "./design/design.css";

const saved = localStorage.getItem("theme");
document.documentElement.dataset.theme = saved ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const root = document.getElementById("app");
if (root) render(<App />, root);
