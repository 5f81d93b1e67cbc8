"""Addresses of the administration pages, which the entries of their menu declare."""

from django.urls import path

from backendai.portal.web.admin.menu import MENU
from backendai.portal.web.admin.start import start

app_name = "manage"
urlpatterns = [path("", start, name="start"), *(way for _, pages in MENU for page in pages for way in page.paths())]
