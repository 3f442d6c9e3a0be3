# A coordinator or a worker, by its command: `rota up` (the default) or `rota worker MODULE:APP`.
#
#   docker build --tag rota .
#   docker run --publish 127.0.0.1:7070:7070 --volume rota:/var/lib/rota rota
#
# The image for workers is made from this one: `FROM rota`, then `COPY` of the program.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE requirements.lock constraints.txt ./
COPY src src
# The virtual environment is what is copied on; pip, the sources and the caches stay behind.
RUN python -m venv /opt/rota \
    && /opt/rota/bin/pip install --no-cache-dir --constraint constraints.txt ".[postgres]"

FROM python:3.13-slim
LABEL org.opencontainers.image.title="Rota" \
      org.opencontainers.image.description="A durable work coordinator for Python" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --home-dir /var/lib/rota --create-home rota
COPY --from=build /opt/rota /opt/rota
COPY deploy/docker/entrypoint.sh /usr/local/bin/rota-entrypoint
ENV PATH=/opt/rota/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ROTA_LOG_FORMAT=json \
    ROTA_HOST=0.0.0.0 \
    ROTA_STORE=sqlite:////var/lib/rota/rota.db
USER 10001
WORKDIR /var/lib/rota
VOLUME /var/lib/rota
EXPOSE 7070 5555
STOPSIGNAL SIGTERM
# Of a coordinator. A worker's container turns it off: its health is what the coordinator sees.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["rota", "health", "--url", "http://127.0.0.1:7070"]
ENTRYPOINT ["rota-entrypoint"]
CMD ["rota", "up"]
