"""Template tags for background jobs."""

from __future__ import annotations

from django import template

from backendai.portal.web.frame import jobs

register = template.Library()
register.filter("job_title", jobs.title_of)
register.filter("job_percent", jobs.percent_of)
register.filter("job_counted", jobs.counted)
