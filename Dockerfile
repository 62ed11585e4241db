# The versions of constraints.txt on Debian 12. On PyPI torch's wheels bring CUDA along;
# a GPU needs the NVIDIA container toolkit besides.
#
#   docker build -t transnormer .
#   docker run --gpus all -it -v "$PWD/runs:/transnormer/runs" transnormer
FROM python:3.11-slim-bookworm

# Triton compiles its launchers, and fairseq its batches, with gcc
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /transnormer
COPY . .
RUN bash scripts/install.sh && .venv/bin/python -m pip cache purge
ENV PATH=/transnormer/.venv/bin:$PATH
CMD ["bash"]
