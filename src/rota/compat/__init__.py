"""The interfaces of other task queues, on Rota: programs can move before their code is changed."""
