import { defineConfig } from "vite";

// The build is the same bytes on every machine: names carry the hash of what is in them, and nothing is inlined (the content
// security policy lets no inline script run).
export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    reportCompressedSize: false,
    // Libraries and generated messages change seldom: browsers keep their file when the application changes.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "api", test: /@bigfleet|@bufbuild|@connectrpc/ },
            { name: "vendor", test: /node_modules/ },
          ],
        },
      },
    },
  },
  server: { proxy: { "/bigfleet.v1alpha1.": "http://127.0.0.1:7700" } },
});
