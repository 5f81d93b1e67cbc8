"""Serves the sandbox page that shows HTML output of code. It is constant and has no cookies and no network.

The page writes the one message that it gets from the page around it. Its header makes the origin opaque even where a
person opens it directly; the portal's ``frame-src`` keeps it from navigating elsewhere.
"""

from __future__ import annotations

from aiohttp import web

_POLICY = "; ".join(
    (
        "sandbox allow-scripts",
        "default-src 'none'",
        "script-src 'unsafe-inline' 'unsafe-eval'",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "font-src data:",
        "media-src data: blob:",
        "connect-src 'none'",
        "form-action 'none'",
        "base-uri 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "max-age=3600",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-DNS-Prefetch-Control": "off",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), clipboard-read=(), clipboard-write=()",
}
_PAGE = """<!doctype html><meta charset="utf-8"><script>
addEventListener("message", (event) => {
  if (event.source !== parent || typeof event.data !== "string") return;
  document.open();
  document.write(event.data);
  document.close();
}, { once: true });
</script>
"""


def answer(request: web.BaseRequest) -> web.Response:
    """Return the sandbox page, whatever the path."""
    if request.method not in ("GET", "HEAD") or request.path != "/":
        return web.Response(status=404, text="There is nothing here.\n", headers=_HEADERS)
    return web.Response(text=_PAGE, content_type="text/html", headers=_HEADERS)
