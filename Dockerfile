# A slim image with the command: docker build -t prism-jax . && docker run --rm -v "$PWD:/work" prism-jax predict my_job.yaml
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY prism_jax prism_jax
COPY inference inference
COPY examples examples
RUN python -m venv /opt/prism && /opt/prism/bin/python -m pip install --no-cache-dir -c constraints.txt .

FROM python:3.13-slim
COPY --from=build /opt/prism /opt/prism
RUN useradd --create-home prism && mkdir /work && chown prism /work
USER prism
WORKDIR /work
ENTRYPOINT ["/opt/prism/bin/prism-jax"]
CMD ["--help"]
