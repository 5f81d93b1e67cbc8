# The image of every process of the platform: portal, workers, agent.
#   docker compose build
#   bin/build-images --only portal     without a registry: on the Debian base of the kernel images, with this machine's
#                                      package index, proxy and certificates
# What belongs to the building site (package sources, index, certificates) comes as optional secrets, which are
# mounted only while a step runs: --secret id=pip-conf,src=/etc/pip.conf and the ids that images/base/Dockerfile takes.
ARG BASE=python:3.11-slim

FROM ${BASE} AS packages
USER root
RUN --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list.d/debian.sources,mode=0444 \
    --mount=type=secret,id=apt-conf,target=/etc/apt/apt.conf.d/99site,mode=0444 \
    --mount=type=secret,id=ca,target=/run/secrets/ca,mode=0444 \
    python3 -c 'import ensurepip' 2>/dev/null \
 || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-venv; }
COPY requirements.txt requirements-telemetry.txt /build/
# --build-arg TELEMETRY=1: with the packages for Sentry and OpenTelemetry
ARG TELEMETRY=
RUN --mount=type=secret,id=pip-conf,target=/etc/pip.conf,mode=0444 \
    --mount=type=secret,id=ca,target=/run/secrets/ca,mode=0444 \
    --mount=type=cache,target=/root/.cache/pip \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi \
 && python3 -m venv /venv \
 && /venv/bin/pip install --disable-pip-version-check --quiet -r /build/requirements.txt ${TELEMETRY:+-r /build/requirements-telemetry.txt} \
 && /venv/bin/pip uninstall --quiet --yes pip setuptools

FROM ${BASE}
USER root
# For agents: the rules that keep sessions off the machine's own services, and the tools that sessions get from it. For
# backup and restore: the programs of PostgreSQL.
RUN --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list.d/debian.sources,mode=0444 \
    --mount=type=secret,id=apt-conf,target=/etc/apt/apt.conf.d/99site,mode=0444 \
    --mount=type=secret,id=ca,target=/run/secrets/ca,mode=0444 \
    apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      e2fsprogs iptables openssh-client openssh-sftp-server postgresql-client rsync tmux \
 && rm -rf /var/lib/apt/lists/*
COPY --from=packages /venv /venv
COPY manage.py requirements.txt LICENSE NOTICE CHANGELOG.md SECURITY.md /app/
COPY backendai /app/backendai
COPY cli /app/cli
COPY templates /app/templates
COPY static /app/static
COPY locale /app/locale
COPY docs /app/docs
# A new named volume on /data takes this owner over.
RUN python3 -m compileall -q /app/backendai && install --directory --owner=1000 --group=1000 --mode=0700 /data
ENV PATH=/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 \
    BACKENDAI_DATA=/data \
    HOME=/data
# Last, so that another commit costs no other step: --build-arg COMMIT=$(git rev-parse HEAD) --build-arg DATE=$(date -u +%F)
# --build-arg SOURCE=$(git remote get-url origin)
ARG COMMIT=
ARG DATE=
ARG SOURCE=
ENV BACKENDAI_BUILD_COMMIT=${COMMIT} BACKENDAI_BUILD_DATE=${DATE}
LABEL org.opencontainers.image.title="Backend.AI portal" \
      org.opencontainers.image.version="1.0.0" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${DATE}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /app
USER 1000:1000
ENTRYPOINT []
CMD ["python", "manage.py", "help"]
