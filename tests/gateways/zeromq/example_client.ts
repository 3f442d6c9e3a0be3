import * as zmq from 'zeromq';

class ShardWorker {
  private socket: zmq.Dealer;
  private serviceName: string;
  private workerId: string;
  private maxShardCount: number;
  private assignedShards: number[] = [];
  private heartbeatInterval: NodeJS.Timeout | null = null;

  constructor(serviceName: string, workerId: string, maxShardCount: number) {
    this.socket = new zmq.Dealer();
    this.serviceName = serviceName;
    this.workerId = workerId;
    this.maxShardCount = maxShardCount;
  }

  async connect(coordinatorUrl: string): Promise<void> {
    await this.socket.connect(coordinatorUrl);
    console.log(`Connected to coordinator at ${coordinatorUrl}`);
  }

  async register(): Promise<void> {
    const message = {
      type: 'register',
      data: {
        serviceName: this.serviceName,
        workerId: this.workerId,
        maxShardCount: this.maxShardCount,
      },
    };

    await this.socket.send(JSON.stringify(message));
    
    // Wait for assignment
    for await (const [response] of this.socket) {
      const assignment = JSON.parse(response.toString());
      if (assignment.type === 'assignment') {
        this.assignedShards = assignment.data.assignedShards;
        console.log(`Assigned shards: ${this.assignedShards.join(', ')}`);
        break;
      }
    }

    // Start heartbeat
    this.startHeartbeat();
  }

  private startHeartbeat(): void {
    this.heartbeatInterval = setInterval(async () => {
      const message = {
        type: 'heartbeat',
        data: {
          serviceName: this.serviceName,
          workerId: this.workerId,
          maxShardCount: this.maxShardCount,
          assignedShards: this.assignedShards,
        },
      };

      try {
        await this.socket.send(JSON.stringify(message));
      } catch (error) {
        console.error('Failed to send heartbeat:', error);
      }
    }, 10000); // Send heartbeat every 10 seconds
  }

  async shutdown(): Promise<void> {
    if (this.heartbeatInterval) {
      clearInterval(this.heartbeatInterval);
    }
    await this.socket.close();
    console.log('Worker shutdown complete');
  }
}

// Usage
const worker = new ShardWorker('my-service', 'worker-1', 100);
await worker.connect('tcp://localhost:5555');
await worker.register();

// Graceful shutdown
process.on('SIGINT', async () => {
  await worker.shutdown();
  process.exit(0);
});
