// Keeps the files of the page for the next visit, also without a network. VERSION and FILES are written by the build.
// Small files come from the network where there is one, so that a new version is seen; large ones are kept under an
// address with their checksum and never loaded twice.

const CACHE = `regard ${VERSION}`;

addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES.map((file) => `./${file}`).concat("./"))));
  skipWaiting();
});

addEventListener("activate", (event) => {
  const old = (name) => name.startsWith("regard ") && name !== CACHE && name !== "regard files";
  event.waitUntil(
    caches.keys().then((names) => Promise.all([clients.claim(), ...names.filter(old).map((name) => caches.delete(name))])),
  );
});

addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || new URL(request.url).origin !== location.origin) return;
  if (new URL(request.url).pathname.endsWith(".bin")) return; // kept by the page itself
  event.respondWith(fetch(request).catch(async () => (await caches.match(request, { ignoreSearch: true })) ?? Response.error()));
});
