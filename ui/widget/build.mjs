// Builds the two bundles into a folder: node build.mjs FOLDER. The committed ones lie in the Python package.
import { build } from "esbuild";

const [folder] = process.argv.slice(2);
if (folder === undefined) {
  console.error("build.mjs needs the folder to write to");
  process.exit(2);
}

await build({
  entryPoints: { loader: "src/loader.ts", widget: "src/widget.ts" },
  outdir: folder,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  charset: "utf8",
  logLevel: "warning",
});
