# The server with the models that ship; docs/serving.md says how to run it.
FROM python:3.12-slim

RUN useradd --create-home --uid 1000 regard
WORKDIR /opt/regard
COPY pyproject.toml setup.py constraints.txt requirements-serve.txt README.md LICENSE ./
COPY regard regard
COPY models models
# The CPU build of PyTorch: the default one brings gigabytes of CUDA libraries.
RUN pip install --no-cache-dir --require-hashes --no-deps --requirement requirements-serve.txt \
    && pip install --no-cache-dir --no-deps --constraint constraints.txt --index-url https://download.pytorch.org/whl/cpu torch \
    && pip install --no-cache-dir --no-deps --no-build-isolation --editable . \
    && pip check

# A number, by which a cluster can see that it is not root.
USER 1000
EXPOSE 5000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:5000/health')"]
ENTRYPOINT ["regard", "serve", "--host", "0.0.0.0"]
